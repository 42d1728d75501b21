//! How much memory an idle connection and an idle open stream keep resident, at either end.
//!
//! `cargo run --release -p fulmar-benches --bin footprint -- [--connections 10000] [--streams 10000] [--tls]`
//!
//! Client and server are processes of their own, which the program starts from itself, so that each end is measured alone.
//! What the kernel keeps for a socket is in neither.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, io};

use fulmar::{Channel, Duplex, Http2Config, LocalReactor, Server};
use fulmar_benches::echo::Echo;
use fulmar_benches::proto::Count;
use fulmar_benches::proto::bench_client::BenchClient;
use fulmar_benches::proto::bench_server::BenchServer;
use fulmar_benches::{resident, secured, watchdog};
use lexopt::prelude::*;

type Done<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: footprint [--connections 10000] [--streams 10000] [--tls]

Prints bytes of resident memory, beyond the kernel's, for each idle connection after one call, and for each idle open stream
after one message each way, at the server's and at the client's end; with --tls over TLS 1.3.
";

/// What is wanted: an idle connection's end, an idle stream's server end and client end. Reported, not asserted.
const GOALS_BYTES: [(&str, u64, u64); 2] = [("connection", 2048, 2048), ("stream", 600, 400)];

/// The same for a connection over TLS. A stream does not know of it.
const TLS_CONNECTION_GOAL_BYTES: u64 = 8192;

/// Files that a process has open besides its connections.
const OTHER_FILES: u64 = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("footprint: {error}");
            ExitCode::from(2)
        }
    }
}

struct Plan {
    connections: u64,
    streams: u64,
    tls: bool,
    role: Role,
}

/// What this process is. The one that the user starts starts the others from itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Table,
    Server,
    /// A client of its own for each figure: memory that one has freed would be there for the next.
    Connections,
    Streams,
}

impl Plan {
    fn parse() -> Done<Option<Self>> {
        let mut plan = Self { connections: 10_000, streams: 10_000, tls: false, role: Role::Table };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("connections") => plan.connections = parser.value()?.parse()?,
                Long("streams") => plan.streams = parser.value()?.parse()?,
                Long("tls") => plan.tls = true,
                Long("serve") => plan.role = Role::Server,
                Long("measure-connections") => plan.role = Role::Connections,
                Long("measure-streams") => plan.role = Role::Streams,
                Long("help") => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        if plan.connections == 0 || plan.streams == 0 || plan.streams > u64::from(u32::MAX / 4) {
            return Err("a number of connections and of streams above 0".into());
        }
        Ok(Some(plan))
    }
}

fn run() -> Done {
    let Some(plan) = Plan::parse()? else {
        print!("{USAGE}");
        return Ok(());
    };
    resident::allow_files(plan.connections + OTHER_FILES)?;
    match plan.role {
        Role::Table => print_table(&plan),
        Role::Server => serve(&plan),
        Role::Connections => tell(connections(&plan)?),
        Role::Streams => tell(streams(&plan)?),
    }
}

fn print_table(plan: &Plan) -> Done {
    let _watchdog = watchdog::start("footprint".to_owned(), Duration::from_secs(300));
    println!("| idle | server end, bytes | goal | client end, bytes | goal |");
    println!("|---|---:|---:|---:|---:|");
    for (what, server_goal, client_goal) in GOALS_BYTES {
        let output = another(plan, &format!("--measure-{what}s"))?.stderr(Stdio::inherit()).output()?;
        let told = String::from_utf8(output.stdout)?;
        let (server, client) = told.trim().split_once(' ').ok_or("the measuring process failed")?;
        let (server_goal, client_goal) = match what {
            "connection" if plan.tls => (TLS_CONNECTION_GOAL_BYTES, TLS_CONNECTION_GOAL_BYTES),
            _ => (server_goal, client_goal),
        };
        println!("| {what} | {server} | {server_goal} | {client} | {client_goal} |");
    }
    Ok(())
}

/// To the process that prints the table.
fn tell((server, client): (u64, u64)) -> Done {
    println!("{server} {client}");
    Ok(())
}

/// This program once more, in a process of its own and in another role.
fn another(plan: &Plan, role: &str) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command
        .arg(role)
        .args(["--connections", &plan.connections.to_string()])
        .args(["--streams", &plan.streams.to_string()]);
    if plan.tls {
        command.arg("--tls");
        secured::share(&mut command);
    }
    Ok(command)
}

/// One channel after the other connects and makes a call, and keeps its connection. Bytes a connection, at the server and here.
fn connections(plan: &Plan) -> Done<(u64, u64)> {
    let mut server = ServerProcess::start(plan)?;
    let endpoint = server.endpoint.clone();
    let mut reactor = LocalReactor::new()?;
    let mut kept = Vec::with_capacity(plan.connections as usize + 1);
    let tls = secured::client();
    let mut connect = |count| -> Done {
        reactor.block_on(async {
            for _ in 0..count {
                let channel = Channel::builder(&endpoint);
                let channel = if plan.tls { channel.tls(tls.clone()) } else { channel };
                let client = BenchClient::new(channel.build()?);
                client.tick(Count { number: 1 }).await?;
                kept.push(client);
            }
            Ok(())
        })
    };
    // What there is one of is not counted.
    connect(1)?;
    let before = (server.resident_bytes()?, resident::bytes()?);
    connect(plan.connections)?;
    let after = (server.resident_bytes()?, resident::bytes()?);
    Ok((each(before.0, after.0, plan.connections), each(before.1, after.1, plan.connections)))
}

/// Streams on one connection, each after a message both ways. Bytes a stream, at the server (its handler included) and here.
fn streams(plan: &Plan) -> Done<(u64, u64)> {
    let mut server = ServerProcess::start(plan)?;
    let mut reactor = LocalReactor::new()?;
    // Both ends have their own limit of streams.
    let channel = Channel::builder(&server.endpoint).http2(http2(plan)?);
    let channel = if plan.tls { channel.tls(secured::client()) } else { channel };
    let client = BenchClient::new(reactor.block_on(channel.connect())?);
    let mut kept = Vec::with_capacity(plan.streams as usize + 1);
    let mut open = |count| -> Done {
        reactor.block_on(async {
            for _ in 0..count {
                let Duplex { mut requests, mut replies } = client.ticks(()).await?;
                requests.send(&Count { number: 1 }).await?;
                if !replies.message_into(&mut Count::default()).await? {
                    return Err("the server ended the stream".into());
                }
                kept.push((requests, replies));
            }
            Ok(())
        })
    };
    open(1)?;
    let before = (server.resident_bytes()?, resident::bytes()?);
    open(plan.streams)?;
    let after = (server.resident_bytes()?, resident::bytes()?);
    Ok((each(before.0, after.0, plan.streams), each(before.1, after.1, plan.streams)))
}

fn each(before: u64, after: u64, count: u64) -> u64 {
    after.saturating_sub(before) / count
}

fn http2(plan: &Plan) -> Done<Http2Config> {
    Ok(Http2Config { streams_max: u32::try_from(plan.streams + 1)?, ..Http2Config::default() })
}

/// The server's end: tells its endpoint, then its resident bytes for each line that comes, until there are no more.
fn serve(plan: &Plan) -> Done {
    let server = Server::builder();
    let server = if plan.tls { server.tls(secured::server()) } else { server };
    let server = server
        .reactors(1)
        .http2(http2(plan)?)
        .add_service(BenchServer::new(Echo))
        .bind("127.0.0.1:0")?
        .spawn()?;
    println!("{}", server.endpoint());
    for line in io::stdin().lines() {
        line?;
        println!("{}", resident::bytes()?);
    }
    Ok(server.shutdown(Duration::ZERO)?)
}

/// The process at the other end, which ends with this value.
struct ServerProcess {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    endpoint: String,
}

impl ServerProcess {
    fn start(plan: &Plan) -> Done<Self> {
        let mut child = another(plan, "--serve")?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("the child has an output")?);
        let mut server = Self { child, questions, answers, endpoint: String::new() };
        server.endpoint = server.line()?;
        Ok(server)
    }

    fn resident_bytes(&mut self) -> Done<u64> {
        let questions = self.questions.as_mut().ok_or("the child has an input")?;
        writeln!(questions)?;
        Ok(self.line()?.parse()?)
    }

    fn line(&mut self) -> Done<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("the server's process ended early".into());
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It ends when nobody can ask any more.
        drop(self.questions.take());
        drop(self.child.wait());
    }
}
