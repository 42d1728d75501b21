//! The official test cases, our client against our server, over TCP in one process.

#[path = "../common/certificates.rs"]
#[allow(dead_code, reason = "shared with tests that ask clients for certificates, too")]
mod certificates;
mod negative;

use fulmar::RunningServer;
use fulmar_interop::client::{self, CASES, Options, Outcome};
use fulmar_interop::server;

use crate::certificates::Certificates;

fn serve() -> RunningServer {
    let options = server::Options { port: 0, ..server::Options::default() };
    server::bind(&options).expect("a free port").spawn().expect("threads for the server")
}

fn options(server: &RunningServer, case: &str) -> Options {
    let address = server.local_addr().expect("a bound server");
    Options {
        server_host: address.ip().to_string(),
        server_port: address.port(),
        test_case: case.to_owned(),
        ..Options::default()
    }
}

fn run(case: &str) -> Outcome {
    let server = serve();
    let mut options = options(&server, case);
    // A loaded machine is no failure.
    options.soak.latency_max = std::time::Duration::from_secs(60);
    options.soak.overall_timeout = std::time::Duration::from_secs(60);
    options.soak.threads = 2;
    client::run(&options)
}

#[test]
fn every_case_passes() {
    let failures: Vec<_> = std::thread::scope(|scope| {
        let cases = CASES.map(|case| (case, scope.spawn(move || run(case))));
        cases
            .into_iter()
            .filter_map(|(case, outcome)| {
                let failure = outcome.join().expect("a case does not panic").err()?;
                Some(format!("{case}: {failure}"))
            })
            .collect()
    });
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Files with a server's certificate, its key, and the authority that signed it, for as long as it lives.
struct CertificateFiles {
    folder: std::path::PathBuf,
}

impl CertificateFiles {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("fulmar-interop-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for certificates");
        let made = Self { folder };
        let Certificates { authority, server, .. } = Certificates::of("foo.test.google.fr");
        for (name, text) in
            [("ca.pem", authority), ("server1.pem", server.certificate), ("server1.key", server.key)]
        {
            std::fs::write(made.folder.join(name), text).expect("a file for a certificate");
        }
        made
    }

    fn path(&self, name: &str) -> Option<String> {
        self.folder.join(name).to_str().map(str::to_owned)
    }
}

impl Drop for CertificateFiles {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn cases_of_every_kind_pass_over_tls() {
    let certificates = CertificateFiles::new();
    let server = server::bind(&server::Options {
        port: 0,
        use_tls: true,
        certificate_file: certificates.path("server1.pem"),
        key_file: certificates.path("server1.key"),
        ..server::Options::default()
    });
    let server = server.expect("a free port").spawn().expect("threads for the server");
    for case in ["large_unary", "client_streaming", "server_compressed_streaming", "ping_pong", "orca_oob"] {
        let mut options = options(&server, case);
        options.use_tls = true;
        options.ca_file = certificates.path("ca.pem");
        options.server_host_override = Some("foo.test.google.fr".to_owned());
        client::run(&options).unwrap_or_else(|failure| panic!("{case}: {failure}"));
        options.server_host_override = None;
        let failure = client::run(&options).expect_err("the certificate has another name").to_string();
        assert!(failure.contains("not valid for name"), "{failure}");
    }
}

#[test]
fn cases_that_need_credentials_and_unknown_ones_say_so() {
    for (case, reason) in
        [("jwt_token_creds", "Google's credentials"), ("no_such_case", "there is no case no_such_case")]
    {
        let text = run(case).expect_err("no such case can pass").to_string();
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn additional_metadata_reaches_the_server_with_each_call() {
    // What the server is told to echo in the metadata comes twice, where the case expects it once.
    let server = serve();
    let mut options = options(&server, "custom_metadata");
    options.additional_metadata.append("x-grpc-test-echo-initial", "more").expect("a legal value");
    let text = client::run(&options).expect_err("the case compares all values").to_string();
    assert!(text.contains(r#"["test_initial_metadata_value", "more"] came"#), "{text}");
}

#[test]
fn a_server_that_is_not_there_fails_the_case() {
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a free port");
    let options =
        Options { server_host: "127.0.0.1".into(), server_port: address.port(), ..Options::default() };
    let text = client::run(&options).expect_err("nobody listens").to_string();
    assert!(text.contains("cannot connect"), "{text}");
}
