//! Ends of connections on which nothing happens: see [`fulmar_http2::Connection::rest`].

use std::fmt;

use fulmar_base::Instant;
use fulmar_http2::Resting;

use crate::admission::Admit;
use crate::client::{Client, write_content_type};
use crate::config::Config;
use crate::end::End;
use crate::server::Server;

/// What only one server's end knows, while there is no call.
pub struct RestingServer {
    http2: Resting,
    admit: Option<Admit>,
}

/// What only one client's end knows, while there is no call.
#[derive(Debug)]
pub struct RestingClient {
    http2: Resting,
}

impl Server {
    /// Takes out what only this end knows, if nothing is under way on it: no call, no stream, and nothing awaited from the client.
    /// What stays behind keeps its memory for the next calls of whichever connection [resumes](Self::resume) in it.
    pub fn rest(&mut self, now: Instant) -> Option<RestingServer> {
        let http2 = self.end.rest(now)?;
        let Self {
            end: _,
            routes: _,
            content_subtype: _,
            status_text: _,
            ending: _,
            admit,
            response_head,
            ok,
            // The numbers of known sections never come again.
            readings: _,
        } = self;
        response_head.forget();
        ok.forget();
        Some(RestingServer { http2, admit: admit.take() })
    }

    /// Makes this the end that rested. To be called on what [`rest`](Self::rest) has left, or on a new end, with the same configuration
    /// and routes.
    pub fn resume(&mut self, resting: RestingServer) {
        let RestingServer { http2, admit } = resting;
        self.end.connection.resume(http2);
        self.admit = admit;
    }

    /// Bytes of memory held that serve nothing while the end rests.
    pub fn spare_memory(&self) -> usize {
        self.end.spare_memory() + self.readings.memory_bytes()
    }
}

impl Client {
    /// Takes out what only this end knows, if nothing is under way on it: no call, no stream, and nothing awaited from the server.
    /// What stays behind keeps its memory for the next calls of whichever connection [resumes](Self::resume) in it.
    pub fn rest(&mut self, now: Instant) -> Option<RestingClient> {
        if !self.ready || self.going_away.is_some() || self.finished.is_some() {
            return None;
        }
        let http2 = self.end.rest(now)?;
        let Self {
            end: _,
            identity: _,
            user_agent: _,
            content_type: _,
            quoted_body_bytes_max: _,
            timeout: _,
            templates,
            // The numbers of known sections never come again.
            readings: _,
            finished: _,
            ready: _,
            going_away: _,
        } = self;
        templates.forget();
        Some(RestingClient { http2 })
    }

    /// Makes this the end that rested. To be called on what [`rest`](Self::rest) has left, or on a new end, with the same configuration
    /// and identity; else after [`reconfigure`](Self::reconfigure).
    pub fn resume(&mut self, resting: RestingClient) {
        self.end.connection.resume(resting.http2);
        self.ready = true;
    }

    /// Gives what [`rest`](Self::rest) has left another configuration and identity: those of the end which is to
    /// [`resume`](Self::resume) in it.
    pub fn reconfigure(&mut self, config: &Config, scheme: &str, authority: &str) {
        self.end.reconfigure(config);
        replace(&mut self.identity.scheme, scheme);
        replace(&mut self.identity.authority, authority);
        replace(&mut self.user_agent, &config.user_agent);
        replace(&mut self.content_type, "");
        write_content_type(&config.content_subtype, &mut self.content_type);
        self.quoted_body_bytes_max = config.quoted_body_bytes_max;
    }

    /// Bytes of memory held that serve nothing while the end rests.
    pub fn spare_memory(&self) -> usize {
        self.end.spare_memory() + self.readings.memory_bytes() + self.templates.memory_bytes()
    }
}

impl End {
    fn rest(&mut self, now: Instant) -> Option<Resting> {
        let is_idle = !self.lost && self.calls.len() == 0 && !self.has_events() && self.held.is_quiet();
        if is_idle { self.connection.rest(now) } else { None }
    }

    /// Takes over another configuration; to be called only between [`rest`](Self::rest) and the next use.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.connection.reconfigure(config.http2.clone());
        self.set_limits(config);
    }

    fn spare_memory(&self) -> usize {
        self.connection.spare_memory() + self.calls.slots_memory() + self.calls.spare_memory()
    }
}

/// Another text, in the same memory.
fn replace(text: &mut String, by: &str) {
    text.clear();
    text.push_str(by);
}

impl RestingServer {
    /// When it has to be [resumed](Server::resume) at the latest, for what passes with time.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.http2.next_deadline()
    }

    /// Bytes of memory held besides its own, without what the one who admits requests holds.
    pub fn memory_bytes(&self) -> usize {
        self.http2.memory_bytes()
    }
}

impl RestingClient {
    /// When it has to be [resumed](Client::resume) at the latest, for what passes with time.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.http2.next_deadline()
    }

    /// Bytes of memory held besides its own.
    pub fn memory_bytes(&self) -> usize {
        self.http2.memory_bytes()
    }
}

impl fmt::Debug for RestingServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestingServer").field("http2", &self.http2).finish_non_exhaustive()
    }
}
