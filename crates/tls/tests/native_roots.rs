//! The certificate authorities of the machine: here a file that a process is told of, as OpenSSL's users do it.

use std::process::Command;

use fulmar_base::{Closed, Endpoint, Env, Instant, Output, Pool, TaskId, Transport};
use fulmar_tls::{ClientTls, ServerTls, Tls};

/// An endpoint that does nothing.
struct Nothing;

impl Endpoint for Nothing {
    type Command = ();

    fn receive(&mut self, _: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        Ok(bytes.len())
    }

    fn transmit(&mut self, _: &mut Env<'_>) -> Result<(), Closed> {
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn on_deadline(&mut self, _: &mut Env<'_>) -> Result<(), Closed> {
        Ok(())
    }

    fn on_command(&mut self, _: &mut Env<'_>, (): ()) -> Result<(), Closed> {
        Ok(())
    }

    fn on_wake(&mut self, _: &mut Env<'_>, _: TaskId) -> Result<(), Closed> {
        Ok(())
    }

    fn on_close(&mut self, _: &mut Env<'_>, _: &Closed) {}
}

/// Where the process that is told of the file finds what it needs.
const FOLDER: &str = "FULMAR_TEST_FOLDER";

#[test]
fn authorities_of_the_machine_are_trusted_and_no_others() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return trust_the_machine(folder.as_ref());
    }
    let folder = std::env::temp_dir().join(format!("fulmar-native-roots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["trusted", "stranger"] {
        let own =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate is made");
        std::fs::write(folder.join(format!("{name}.pem")), own.cert.pem()).expect("a file");
        std::fs::write(folder.join(format!("{name}.key")), own.signing_key.serialize_pem()).expect("a file");
    }
    // Variables of the environment are set for a process that begins: in one with threads they must not be.
    let run = |roots: &str| {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "authorities_of_the_machine_are_trusted_and_no_others", "--nocapture"])
            .env(FOLDER, &folder)
            .env("SSL_CERT_FILE", folder.join(roots))
            .env_remove("SSL_CERT_DIR")
            .output()
            .expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (trusted, none) = (run("trusted.pem"), run("nothing.pem"));
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    assert!(trusted.0, "{}", trusted.1);
    assert!(trusted.1.contains("the machine trusts localhost"), "{}", trusted.1);
    assert!(none.1.contains("this machine has no certificate authorities"), "{}", none.1);
}

fn trust_the_machine(folder: &std::path::Path) {
    let client = match ClientTls::with_native_roots() {
        Ok(client) => client,
        Err(error) => return println!("{error}"),
    };
    for (name, expected) in [("trusted", true), ("stranger", false)] {
        let read = |kind: &str| std::fs::read(folder.join(format!("{name}.{kind}"))).expect("a file");
        let server = ServerTls::from_pem(read("pem"), read("key")).expect("the pair is one");
        assert_eq!(shakes_hands(&client, &server), expected, "{name}");
    }
    println!("the machine trusts localhost");
}

fn shakes_hands(client: &ClientTls, server: &ServerTls) -> bool {
    let name = client.name_for("localhost").expect("it is a name");
    let (mut client, mut server) =
        (Tls::new(client.session(&name), Nothing), Tls::new(server.session(), Nothing));
    let (mut pool, mut there, mut back) = (Pool::new(), Output::new(), Output::new());
    let now = Instant::ZERO;
    client.transmit(&mut Env::new(now, &mut pool, &mut there)).expect("the client starts");
    while !there.is_empty() || !back.is_empty() {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        there.move_to(&mut to_server);
        if !to_server.is_empty()
            && server.receive(&mut Env::new(now, &mut pool, &mut back), &mut to_server).is_err()
        {
            return false;
        }
        back.move_to(&mut to_client);
        if !to_client.is_empty()
            && client.receive(&mut Env::new(now, &mut pool, &mut there), &mut to_client).is_err()
        {
            return false;
        }
    }
    !client.is_handshaking() && !server.is_handshaking()
}
