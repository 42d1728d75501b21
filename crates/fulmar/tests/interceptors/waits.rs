//! Interceptors that wait.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use fulmar::{
    CallHead, Channel, Code, Duplex, Intercepted, Interceptor, LocalReactor, Raw, Request, Response,
    RunningServer, Server, Status, Streaming, blocking,
};

use crate::common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_SUM, block_on, number, value};
use crate::{Log, Recorder, end};

/// A gate that another thread opens.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<GateState>>);

#[derive(Default)]
struct GateState {
    is_open: bool,
    wakers: Vec<Waker>,
}

impl Gate {
    fn open(&self) {
        let mut state = self.0.lock().unwrap();
        state.is_open = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> usize {
        self.0.lock().unwrap().wakers.len()
    }

    async fn pass(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.is_open {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Opens as soon as somebody waits.
    fn open_when_waited_for(&self) -> thread::JoinHandle<()> {
        let gate = self.clone();
        thread::spawn(move || {
            crate::common::eventually("somebody waits", || gate.waiting() > 0);
            gate.open();
        })
    }
}

impl Interceptor for Gate {
    async fn on_call(&self, _: &mut CallHead) -> Result<(), Status> {
        self.pass().await;
        Ok(())
    }
}

fn serve(gate: &Gate, log: &Log) -> RunningServer {
    Server::builder()
        .reactors(1)
        .add_service(Intercepted::new(Demo::default(), gate.clone()).intercept(Recorder::new("inner", log)))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap()
}

#[test]
fn calls_whose_messages_arrive_while_a_servers_interceptor_waits_go_on_afterwards() {
    for path in [PATH_ECHO, PATH_COUNT, PATH_SUM, PATH_CHAT] {
        let (gate, log) = (Gate::default(), Log::default());
        let server = serve(&gate, &log);
        block_on(async {
            let channel = Channel::connect(server.endpoint()).await.unwrap();
            let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(path, ()).await.unwrap();
            requests.send(&number(1)).await.unwrap();
            requests.finish();
            crate::common::eventually("the interceptor waits", || gate.waiting() > 0);
            assert!(log.take().is_empty());
            let opener = gate.open_when_waited_for();
            let expected = match path {
                PATH_COUNT => 0,
                PATH_CHAT => 2,
                _ => 1,
            };
            assert_eq!(replies.message().await.unwrap(), Some(number(expected)), "{path}");
            assert_eq!(replies.message().await.unwrap(), None);
            opener.join().unwrap();
        });
        end(server);
    }
}

#[test]
fn a_second_request_is_one_too_many_also_while_an_interceptor_waits() {
    let (gate, log) = (Gate::default(), Log::default());
    let server = serve(&gate, &log);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_ECHO, ()).await.unwrap();
        requests.send(&number(1)).await.unwrap();
        let _ = requests.send(&number(2)).await;
        assert_eq!(replies.message().await.unwrap_err().code(), Code::Unimplemented);
    });
    end(server);
}

#[test]
fn a_deadline_ends_the_wait_of_a_servers_interceptor() {
    let (gate, log) = (Gate::default(), Log::default());
    let server = Server::builder()
        .reactors(1)
        .add_service(Intercepted::new(Demo::default(), Recorder::new("outer", &log)).intercept(gate.clone()))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    // A blocking client that does nothing does not cancel its call at the deadline either.
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let mut upload = channel
        .client_streaming::<Raw, Raw>(PATH_SUM, Request::new(()).with_timeout(Duration::from_secs(1)))
        .unwrap();
    upload.send(&number(1)).unwrap();
    let log = log.take_after_ends(1);
    assert!(log.contains(&"outer finish DEADLINE_EXCEEDED".to_owned()), "{log:?}");
    assert!(gate.waiting() > 0);
    drop(upload);
    drop(channel);
    end(server);
}

#[test]
fn calls_go_on_when_a_channels_interceptor_has_waited() {
    let server = crate::common::serve();
    block_on(async {
        let plain = Channel::connect(server.endpoint()).await.unwrap();
        for timeout in [None, Some(Duration::from_secs(60))] {
            let gate = Gate::default();
            let opener = gate.open_when_waited_for();
            let channel = plain.intercept(gate);
            let mut request = Request::new(number(7));
            if let Some(timeout) = timeout {
                request.set_timeout(timeout);
            }
            let reply: Response<Raw> = channel.unary(PATH_ECHO, request).await.unwrap();
            assert_eq!(value(reply.get_ref()), 7);
            opener.join().unwrap();
            crate::common::four_kinds(&channel).await;
        }
    });
    let gate = Gate::default();
    let opener = gate.open_when_waited_for();
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap().intercept(gate);
    assert!(channel.unary::<Raw, Raw>(PATH_ECHO, number(7)).is_ok());
    opener.join().unwrap();
    drop(channel);
    end(server);
}

#[test]
fn a_deadline_ends_the_wait_of_a_channels_interceptor_wherever_the_call_is_made() {
    let server = crate::common::serve();
    let log = Log::default();
    let timeout = Duration::from_millis(50);
    let late = async |channel: Channel| {
        let channel = channel.intercept(Recorder::new("outer", &log)).intercept(Gate::default());
        for _ in 0..3 {
            let request = Request::new(number(1)).with_timeout(timeout);
            let status = channel.unary::<Raw, Raw>(PATH_ECHO, request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert!(status.message().contains("interceptor"), "{status}");
            let request = Request::new(number(1)).with_timeout(timeout);
            let listed: Result<Response<Streaming<Raw>>, Status> =
                channel.server_streaming(PATH_COUNT, request).await;
            assert_eq!(listed.unwrap_err().code(), Code::DeadlineExceeded);
            let request = Request::new(()).with_timeout(timeout);
            assert!(channel.client_streaming::<Raw, Raw>(PATH_SUM, request).await.is_err());
            let request = Request::new(()).with_timeout(timeout);
            assert!(channel.bidi::<Raw, Raw>(PATH_CHAT, request).await.is_err());
        }
        let log = log.take();
        assert_eq!(
            log.iter().filter(|line| *line == "outer finish DEADLINE_EXCEEDED").count(),
            12,
            "{log:?}"
        );
    };
    block_on(async { late(Channel::connect(server.endpoint()).await.unwrap()).await });
    block_on(late(server.in_process()));
    let mut reactor = LocalReactor::new().unwrap();
    let endpoint = server.endpoint();
    reactor.block_on(async { late(Channel::connect(endpoint).await.unwrap()).await });

    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap().intercept(Gate::default());
    let request = Request::new(number(1)).with_timeout(timeout);
    let status = channel.unary::<Raw, Raw>(PATH_ECHO, request).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    drop(channel);
    end(server);
}

/// Gives calls a second.
struct Hurry;

impl Interceptor for Hurry {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        call.limit_time(Duration::from_secs(1));
        Ok(())
    }
}

#[test]
fn a_time_that_an_interceptor_sets_also_holds_for_those_behind_it() {
    let server = crate::common::serve();
    for timeout in [None, Some(Duration::from_secs(3_600))] {
        let request = || {
            let mut request = Request::new(number(1));
            if let Some(timeout) = timeout {
                request.set_timeout(timeout);
            }
            request
        };
        let channel = block_on(Channel::connect(server.endpoint())).unwrap();
        let (before, behind) = (Gate::default(), Gate::default());
        let opener = before.open_when_waited_for();
        let channel = channel.intercept(before).intercept(Hurry).intercept(behind);
        let status = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, request())).unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        opener.join().unwrap();

        let channel = blocking::Channel::connect(server.endpoint()).unwrap();
        let mut channel = channel.intercept(Hurry).intercept(Gate::default());
        let status = channel.unary::<Raw, Raw>(PATH_ECHO, request()).unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    end(server);
}

#[test]
fn a_deadline_of_a_call_that_an_interceptor_holds_outlasts_the_opening_of_the_connection() {
    let server = crate::common::serve();
    let plain = Channel::builder(server.endpoint()).build().unwrap();
    let gated = plain.intercept(Gate::default());
    let request = Request::new(number(1)).with_timeout(Duration::from_secs(1));
    let mut held = Box::pin(gated.unary::<Raw, Raw>(PATH_ECHO, request));
    block_on(async {
        poll_fn(|cx| {
            assert!(held.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        // It connects the channel, for which the other call has not been waiting.
        crate::common::four_kinds(&plain).await;
    });
    assert_eq!(block_on(held).unwrap_err().code(), Code::DeadlineExceeded);
    end(server);
}

#[test]
fn dropping_a_call_that_an_interceptor_holds_is_told_as_cancelled() {
    let server = crate::common::serve();
    let (gate, log) = (Gate::default(), Log::default());
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let channel = channel.intercept(Recorder::new("outer", &log)).intercept(gate.clone());
        let request = Request::new(number(1)).with_timeout(Duration::from_secs(60));
        let mut call = Box::pin(channel.unary::<Raw, Raw>(PATH_ECHO, request));
        poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(call);
    });
    assert_eq!(log.take().last().unwrap(), "outer finish CANCELLED");
    end(server);
}

/// Asks another method of its own server, as one that checks a token would.
struct Asking(Channel);

impl Interceptor for Asking {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        let reply: Response<Raw> = self.0.unary(PATH_SUM, number(40)).await?;
        call.metadata_mut().insert("x-echo", &value(reply.get_ref()).to_string()).unwrap();
        Ok(())
    }
}

#[test]
fn a_servers_interceptor_may_make_calls() {
    let backend = crate::common::serve();
    let asked = block_on(Channel::connect(backend.endpoint())).unwrap();
    let server = Server::builder()
        .reactors(1)
        .add_service(Demo::default())
        .intercept(Asking(asked))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let reply: Response<Raw> = channel.unary(PATH_ECHO, number(2)).await.unwrap();
        assert_eq!(reply.metadata().get("x-echo"), Some("40"));
    });
    end(server);
    end(backend);
}
