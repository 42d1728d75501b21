//! Interceptors on both sides, around calls of all four kinds.

#[path = "../common/mod.rs"]
mod common;

mod again;
mod changes;
mod ends;
mod order;
mod waits;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulmar::{CallHead, CallInfo, Code, Interceptor, MetadataMap, RunningServer, Status};

/// What interceptors have seen, in that order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Waits until the end of so many calls was seen, and takes what there is.
    fn take_after_ends(&self, count: usize) -> Vec<String> {
        common::eventually("the end of the call is told", || {
            self.0.lock().unwrap().iter().filter(|line| line.contains("finish")).count() >= count
        });
        self.take()
    }
}

/// Writes down everything it sees.
struct Recorder {
    name: &'static str,
    log: Log,
}

impl Recorder {
    fn new(name: &'static str, log: &Log) -> Self {
        Self { name, log: log.clone() }
    }

    fn add(&self, what: &str) {
        self.log.add(format!("{} {what}", self.name));
    }
}

impl Interceptor for Recorder {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        self.add(&format!("call {}", call.path()));
        Ok(())
    }

    fn on_request_message(&self, _: &CallInfo, message: &[u8]) -> Result<(), Status> {
        self.add(&format!("request {}", message.len()));
        Ok(())
    }

    fn on_response_metadata(&self, _: &CallInfo, _: &mut MetadataMap) -> Result<(), Status> {
        self.add("metadata");
        Ok(())
    }

    fn on_response_message(&self, _: &CallInfo, message: &[u8]) -> Result<(), Status> {
        self.add(&format!("response {}", message.len()));
        Ok(())
    }

    fn on_finish(&self, _: &CallInfo, status: &mut Status, _: &mut MetadataMap) {
        self.add(&format!("finish {}", status.code()));
    }
}

/// Refuses everything, at one of the hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hook {
    Call,
    Request,
    Metadata,
    Response,
    Finish,
}

const HOOKS: [Hook; 5] = [Hook::Call, Hook::Request, Hook::Metadata, Hook::Response, Hook::Finish];

/// Fails at one hook: with a status, or by a panic.
struct Failing {
    at: Hook,
    panics: bool,
}

impl Failing {
    fn fail(&self, hook: Hook) -> Result<(), Status> {
        if hook != self.at {
            return Ok(());
        }
        assert!(!self.panics, "the interceptor has had enough");
        Err(Status::permission_denied(format!("refused at {hook:?}")))
    }

    fn code(&self) -> Code {
        if self.panics { Code::Unknown } else { Code::PermissionDenied }
    }
}

impl Interceptor for Failing {
    async fn on_call(&self, _: &mut CallHead) -> Result<(), Status> {
        self.fail(Hook::Call)
    }

    fn on_request_message(&self, _: &CallInfo, _: &[u8]) -> Result<(), Status> {
        self.fail(Hook::Request)
    }

    fn on_response_metadata(&self, _: &CallInfo, _: &mut MetadataMap) -> Result<(), Status> {
        self.fail(Hook::Metadata)
    }

    fn on_response_message(&self, _: &CallInfo, _: &[u8]) -> Result<(), Status> {
        self.fail(Hook::Response)
    }

    fn on_finish(&self, _: &CallInfo, status: &mut Status, _: &mut MetadataMap) {
        if let Err(refusal) = self.fail(Hook::Finish) {
            *status = refusal;
        }
    }
}

fn end(server: RunningServer) {
    server.shutdown(Duration::from_secs(5)).unwrap();
}
