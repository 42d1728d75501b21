//! What a request costs a server that `h2load` asks: processor time of its process, which is another one.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::{env, fs, io};

use fulmar::Server;
use fulmar_benches::echo::Echo;
use fulmar_benches::proto::bench_server::BenchServer;

use crate::{Fallible, Plan, Row, median};

const REQUESTS: u32 = 200_000;

/// The server: says where it is, and serves until its standard input ends.
pub(crate) fn serve() -> Fallible<()> {
    let server = Server::builder().reactors(1).add_service(BenchServer::new(Echo)).bind("127.0.0.1:0")?;
    println!("{}", server.local_addr()?);
    let server = server.spawn()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown(std::time::Duration::ZERO)?;
    Ok(())
}

pub(crate) fn cpu(plan: &Plan) -> Fallible<Vec<Row>> {
    let mut server = Command::new(env::current_exe()?)
        .arg("--serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let measured = measure(plan, &mut server);
    // Its standard input ends, and so does it.
    drop(server.stdin.take());
    server.wait()?;
    let goal = 0.6;
    Ok(vec![Row::at_most("server CPU a request, `-c1 -m100` (µs)", goal, measured?, String::new())])
}

fn measure(plan: &Plan, server: &mut Child) -> Fallible<f64> {
    let mut address = String::new();
    let stdout = server.stdout.as_mut().ok_or("its output is a pipe")?;
    BufReader::new(stdout).read_line(&mut address)?;
    let url = format!("http://{}/fulmar.bench.Bench/Unary", address.trim());
    let message = env::temp_dir().join(format!("fulmar-goals-{}", std::process::id()));
    // A payload of one byte: field 1, of length 1, behind the prefix of a message of 3 bytes.
    fs::write(&message, [0, 0, 0, 0, 3, 0x0a, 1, 7])?;
    let mut rounds = Vec::new();
    for round in 0..=plan.rounds {
        let before = cpu_ns(server.id())?;
        let loaded = Command::new("h2load")
            .args(["-n", &REQUESTS.to_string(), "-c1", "-m100", "-t1"])
            .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
            .arg("-d")
            .arg(&message)
            .arg(&url)
            .output()
            .map_err(|error| format!("h2load: {error} (apt-get install nghttp2-client)"))?;
        let output = String::from_utf8_lossy(&loaded.stdout);
        if !output.contains(&format!("{REQUESTS} succeeded")) {
            return Err(format!("h2load: {output}").into());
        }
        // The first one warms the server up.
        if round > 0 {
            rounds.push((cpu_ns(server.id())? - before) as f64 / f64::from(REQUESTS) / 1e3);
        }
    }
    fs::remove_file(&message)?;
    median(rounds)
}

/// What all threads of a process have used.
fn cpu_ns(process: u32) -> Fallible<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let ns = text.split_whitespace().next().ok_or("the kernel counts no processor time")?;
        sum += ns.parse::<u64>()?;
    }
    Ok(sum)
}
