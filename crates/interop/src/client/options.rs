//! The flags of the test client.

use std::ffi::OsString;
use std::time::Duration;

use fulmar::MetadataMap;
use fulmar::tls::{ClientTls, TlsError};

use crate::flags;

/// The only balancing policy that a service config may name: the one of the ORCA cases, which reads load reports. These cases read them
/// through Fulmar's public API.
const LOAD_REPORT_POLICY: &str = "test_backend_metrics_load_balancer";

/// What `--help` prints in front of the names of the cases.
pub const USAGE: &str = "\
The gRPC interop test client. Exits with 0 when the case passes.

  --server_host=HOST                      server to connect to (localhost)
  --server_port=PORT                      its port (10000)
  --test_case=CASE                        case to run (large_unary)
  --num_times=N                           how often to run it (1)
  --additional_metadata=K1:V1;K2:V2       metadata for each call
  --service_config_json=JSON              only the policy test_backend_metrics_load_balancer is accepted
  --use_tls, --use_test_ca, --ca_file=FILE, --server_host_override=NAME
  --use_alts, --alts_handshaker_service_address=ADDRESS, --custom_credentials_type=TYPE
  --default_service_account=EMAIL, --service_account_key_file=FILE, --oauth_scope=SCOPE
  --google_c2p_universe_domain=DOMAIN
  --soak_iterations=N (10)                --soak_max_failures=N (0)
  --soak_per_iteration_max_acceptable_latency_ms=N (1000)
  --soak_overall_timeout_seconds=N (10)   --soak_min_time_ms_between_rpcs=N (0)
  --soak_request_size=N (271828)          --soak_response_size=N (314159)
  --soak_num_threads=N (1)
";

/// What the flags say.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--server_host`: a name or an address.
    pub server_host: String,
    /// `--server_port`.
    pub server_port: u16,
    /// `--test_case`: one of [`CASES`](super::CASES).
    pub test_case: String,
    /// `--num_times`: how often the case is run.
    pub times: u32,
    /// `--additional_metadata`: goes with each call.
    pub additional_metadata: MetadataMap,
    /// `--use_tls`.
    pub use_tls: bool,
    /// `--use_test_ca`: trust `ca_file` instead of the roots of the web.
    pub use_test_ca: bool,
    /// `--ca_file`: a file in PEM format.
    pub ca_file: Option<String>,
    /// `--server_host_override`: the name that the server's certificate must have.
    pub server_host_override: Option<String>,
    /// The flags of the two soak cases.
    pub soak: SoakOptions,
    /// Flags that ask for what is not supported, each with the reason. Any of them fails the case.
    pub refused: Vec<String>,
}

/// What `rpc_soak` and `channel_soak` do.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// `--soak_iterations`: how many calls in all.
    pub iterations: u32,
    /// `--soak_max_failures`: how many of them may fail or be late.
    pub failures_max: u32,
    /// `--soak_per_iteration_max_acceptable_latency_ms`: from when a call is late.
    pub latency_max: Duration,
    /// `--soak_overall_timeout_seconds`: from when no more calls are begun.
    pub overall_timeout: Duration,
    /// `--soak_min_time_ms_between_rpcs`: the shortest time from the begin of a call to the begin of the next in a thread.
    pub pause_min: Duration,
    /// `--soak_request_size`, in bytes.
    pub request_bytes: usize,
    /// `--soak_response_size`, in bytes.
    pub response_bytes: i32,
    /// `--soak_num_threads`: how many threads share the calls.
    pub threads: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server_host: "localhost".to_owned(),
            server_port: 10_000,
            test_case: "large_unary".to_owned(),
            times: 1,
            additional_metadata: MetadataMap::new(),
            use_tls: false,
            use_test_ca: false,
            ca_file: None,
            server_host_override: None,
            soak: SoakOptions::default(),
            refused: Vec::new(),
        }
    }
}

impl Default for SoakOptions {
    fn default() -> Self {
        Self {
            iterations: 10,
            failures_max: 0,
            latency_max: Duration::from_secs(1),
            overall_timeout: Duration::from_secs(10),
            pause_min: Duration::ZERO,
            request_bytes: 271_828,
            response_bytes: 314_159,
            threads: 1,
        }
    }
}

impl Options {
    /// Reads the flags of a command line.
    ///
    /// # Errors
    /// A text for the user.
    pub fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut options = Self::default();
        flags::parse(given, |name, flag| {
            match name {
                "server_host" => options.server_host = flag.text()?,
                "server_port" => options.server_port = flag.number()?,
                "test_case" => options.test_case = flag.text()?,
                "num_times" => options.times = flag.number()?,
                "additional_metadata" => options.additional_metadata = metadata(&flag.text()?)?,
                "service_config_json" => check_service_config(&flag.text()?)?,
                "use_tls" => options.use_tls = flag.switch()?,
                "use_test_ca" => options.use_test_ca = flag.switch()?,
                "ca_file" => options.ca_file = filled(flag.text()?),
                "server_host_override" => options.server_host_override = filled(flag.text()?),
                "use_alts" if flag.switch()? => options.refuse("--use_alts=true", "ALTS is not supported"),
                // Without ALTS, without Google's credentials and without its names, these change nothing.
                "use_alts" => {}
                "alts_handshaker_service_address"
                | "default_service_account"
                | "service_account_key_file"
                | "oauth_scope"
                | "google_c2p_universe_domain" => drop(flag.text()?),
                "custom_credentials_type" if filled(flag.text()?).is_some() => {
                    options.refuse("--custom_credentials_type", "Google's credentials are not supported");
                }
                "custom_credentials_type" => {}
                _ => return options.soak.take(name, flag),
            }
            Ok(true)
        })?;
        Ok(options)
    }

    fn refuse(&mut self, flag: &str, why: &str) {
        self.refused.push(format!("{flag}: {why}"));
    }

    /// Whether the client can do what is asked for.
    ///
    /// # Errors
    /// A text for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.tls()?;
        if !self.refused.is_empty() {
            return Err(self.refused.join("; "));
        }
        Ok(())
    }

    /// Whom the channel trusts; None without `--use_tls`.
    ///
    /// # Errors
    /// A text for the user: a file that cannot be read, or has no certificate.
    pub(crate) fn tls(&self) -> Result<Option<ClientTls>, String> {
        if !self.use_tls {
            return Ok(None);
        }
        let failed = |error: TlsError| error.to_string();
        let tls = match (&self.ca_file, self.use_test_ca) {
            (Some(file), _) => {
                let pem = std::fs::read(file).map_err(|error| format!("--ca_file={file}: {error}"))?;
                ClientTls::from_ca_pem(pem).map_err(failed)?
            }
            (None, true) => return Err("--use_test_ca=true: which one it is, says --ca_file=FILE".to_owned()),
            (None, false) => ClientTls::new().map_err(failed)?,
        };
        Ok(Some(match &self.server_host_override {
            Some(name) => tls.server_name(name).map_err(failed)?,
            None => tls,
        }))
    }

    /// What the channel connects to.
    pub fn endpoint(&self) -> String {
        let scheme = if self.use_tls { "https" } else { "http" };
        // An IPv6 address stands in brackets in front of a port.
        if self.server_host.contains(':') && !self.server_host.starts_with('[') {
            format!("{scheme}://[{}]:{}", self.server_host, self.server_port)
        } else {
            format!("{scheme}://{}:{}", self.server_host, self.server_port)
        }
    }
}

impl SoakOptions {
    /// Takes a flag of the soak cases; false for any other.
    fn take(&mut self, name: &str, flag: &mut flags::Flag<'_>) -> Result<bool, String> {
        match name {
            "soak_iterations" => self.iterations = flag.number()?,
            "soak_max_failures" => self.failures_max = flag.number()?,
            "soak_per_iteration_max_acceptable_latency_ms" => {
                self.latency_max = Duration::from_millis(flag.number()?);
            }
            "soak_overall_timeout_seconds" => self.overall_timeout = Duration::from_secs(flag.number()?),
            "soak_min_time_ms_between_rpcs" => self.pause_min = Duration::from_millis(flag.number()?),
            "soak_request_size" => self.request_bytes = flag.number()?,
            "soak_response_size" => self.response_bytes = flag.number()?,
            "soak_num_threads" => self.threads = flag.number()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// `k1:v1;k2:v2`; a value may have colons.
fn metadata(text: &str) -> Result<MetadataMap, String> {
    let mut metadata = MetadataMap::new();
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once(':')
            .ok_or_else(|| format!("--additional_metadata: there is no colon in \"{pair}\""))?;
        metadata.append(name, value).map_err(|error| format!("--additional_metadata: {error}"))?;
    }
    Ok(metadata)
}

/// Accepts `{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`, and an empty text for none.
fn check_service_config(text: &str) -> Result<(), String> {
    let accepted = serde_json::json!({ "loadBalancingConfig": [{ LOAD_REPORT_POLICY: {} }] });
    if text.is_empty() {
        return Ok(());
    }
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(config) if config == accepted => Ok(()),
        Ok(_) => Err(format!("--service_config_json: only {accepted} is supported, not {text}")),
        Err(error) => Err(format!("--service_config_json: this is no JSON: {error}")),
    }
}

fn filled(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_flags_of_the_official_runner_are_understood() {
        let options = parsed(
            "--test_case=empty_unary --server_host=127.0.0.1 --server_port=7 \
             --server_host_override=foo.test.google.fr --use_test_ca=true --use_tls=false --ca_file=ca.pem \
             --soak_iterations=4 --soak_num_threads 2 --additional_metadata=k1:v1;k2:v:2",
        )
        .unwrap();
        assert_eq!(
            (options.test_case.as_str(), options.endpoint().as_str()),
            ("empty_unary", "http://127.0.0.1:7")
        );
        assert_eq!((options.soak.iterations, options.soak.threads), (4, 2));
        assert_eq!(options.additional_metadata.get("k2"), Some("v:2"));
        assert_eq!(options.check(), Ok(()));
        assert_eq!(parsed("--server_host=::1").unwrap().endpoint(), "http://[::1]:10000");
        let secured = parsed("--server_host=localhost --use_tls").unwrap();
        assert_eq!((secured.endpoint().as_str(), secured.check()), ("https://localhost:10000", Ok(())));
    }

    #[test]
    fn only_the_load_report_policy_is_accepted_as_service_config() {
        for accepted in [
            r#"--service_config_json={"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}"#,
            "--service_config_json=",
        ] {
            assert!(parsed(accepted).is_ok(), "{accepted}");
        }
        for (refused, reason) in [
            (r#"--service_config_json={"loadBalancingConfig":[{"round_robin":{}}]}"#, "only"),
            (r#"--service_config_json={"methodConfig":[]}"#, "only"),
            ("--service_config_json={", "no JSON"),
        ] {
            let text = parsed(refused).unwrap_err();
            assert!(text.contains(reason), "{refused}: {text}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_and_not_ignored() {
        for (line, reason) in [
            ("--use_tls=true --use_test_ca=true", "--ca_file"),
            ("--use_tls=true --ca_file=/nonexistent/ca.pem", "/nonexistent/ca.pem"),
            ("--use_alts", "ALTS"),
            ("--custom_credentials_type=google_default_credentials", "credentials"),
        ] {
            let text = parsed(line).unwrap().check().unwrap_err();
            assert!(text.contains(reason), "{line}: {text}");
        }
        assert!(parsed("--additional_metadata=novalue").unwrap_err().contains("no colon"));
    }
}
