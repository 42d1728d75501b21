//! Connections that rest between calls, on a reactor with both of their ends.

use super::*;
use crate::{Raw, Request, Response};

struct Unary(Arc<()>);

impl crate::Service for Unary {
    fn name(&self) -> &'static str {
        "demo.Unary"
    }

    fn register(&self, router: &mut crate::Router) {
        router.unary("/demo.Unary/Call", &self.0, |_, request: Request<Raw>| async move {
            Ok::<_, fulmar_grpc::Status>(Response::new(request.into_inner()))
        });
    }
}

struct World {
    reactor: RoofReactor,
    shared: Arc<ServerShared>,
    endpoint: String,
}

impl World {
    fn new() -> Self {
        let server = Server::builder().add_service(Unary(Arc::default())).bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        let mut reactor = reactor();
        let (shared, listener) = server.into_parts();
        let (host, core) = reactor.parts();
        host.serve(core, &shared, listener, false).unwrap();
        Self { reactor, shared, endpoint }
    }

    fn channel(&self) -> Channel {
        Channel::builder(&self.endpoint).build().unwrap()
    }

    fn call(&mut self, channel: &Channel, text: &str) {
        let _running = Running::enter(self.reactor.core().mailbox());
        let message = Raw::from(text.as_bytes().to_vec());
        let reply: Response<Raw> = self
            .reactor
            .block_on(async { channel.unary("/demo.Unary/Call", message).await })
            .expect("the server answers");
        assert_eq!(reply.into_inner().as_ref(), text.as_bytes());
    }

    /// How many ends are awake, and how many rest.
    fn ends(&mut self) -> (usize, usize) {
        let core = self.reactor.core();
        core.keys().into_iter().fold((0, 0), |(awake, resting), key| {
            let is_awake = match core.transport(key) {
                Some(RoofTransport::Client(wire)) => wire.endpoint().awake().is_some(),
                Some(RoofTransport::Server(wire)) => wire.endpoint().awake().is_some(),
                None => return (awake, resting),
            };
            (awake + usize::from(is_awake), resting + usize::from(!is_awake))
        })
    }

    fn turn_until(&mut self, ends: (usize, usize)) {
        let until = std::time::Instant::now() + LONG;
        while self.ends() != ends {
            assert!(std::time::Instant::now() < until, "{:?} instead of {ends:?}", self.ends());
            self.reactor.turn(Some(Duration::from_millis(20))).unwrap();
        }
    }

    /// How many bodies wait for clients' ends, and for servers'.
    fn bodies(&mut self) -> (usize, usize) {
        let (host, _) = self.reactor.parts();
        let server = host.servers.get(self.shared.id).expect("it serves");
        (host.channels.bodies(), server.shelf.bodies())
    }
}

#[test]
fn ends_rest_between_calls_and_share_their_bodies() {
    let mut world = World::new();
    let channels: Vec<_> = (0..5).map(|_| world.channel()).collect();
    for (n, channel) in channels.iter().enumerate() {
        world.call(channel, "first");
        world.turn_until((0, 2 * (n + 1)));
        assert_eq!(world.bodies(), (1, 1), "the next connection begins in the body of the last one");
    }
    for round in 0..3 {
        for channel in &channels {
            world.call(channel, &format!("round {round}"));
            world.call(channel, "again");
        }
        world.turn_until((0, 10));
        let (clients, servers) = world.bodies();
        assert!((1..=5).contains(&clients) && (1..=5).contains(&servers), "{clients} {servers}");
    }
    let (host, core) = world.reactor.parts();
    let counts = host.counts(core);
    assert_eq!((counts.connections, counts.streams, counts.blocks), (10, 0, 0), "{counts:?}");
}

#[test]
fn a_channel_that_is_dropped_while_its_connection_rests_leaves_nothing_behind() {
    let mut world = World::new();
    let (channel, other) = (world.channel(), world.channel());
    world.call(&channel, "hello");
    world.call(&other, "hello");
    world.turn_until((0, 4));
    let spec = Arc::downgrade(channel.spec());
    drop(channel);
    world.turn_until((0, 2));
    assert!(spec.upgrade().is_none(), "no body holds the channel");
    world.call(&other, "still there");
}

#[test]
fn a_server_that_shuts_down_takes_leave_of_clients_at_rest() {
    let mut world = World::new();
    let channel = world.channel();
    world.call(&channel, "hello");
    world.turn_until((0, 2));
    world.shared.shutdown(LONG);
    world.turn_until((0, 0));
    assert!(world.shared.wait_ended(Duration::ZERO));
}

#[test]
fn a_client_that_vanishes_while_its_connection_rests_is_forgotten() {
    let mut world = World::new();
    let channel = world.channel();
    world.call(&channel, "hello");
    world.turn_until((0, 2));
    let (_, core) = world.reactor.parts();
    let clients: Vec<_> = core
        .keys()
        .into_iter()
        .filter(|&key| matches!(core.transport(key), Some(RoofTransport::Client(_))))
        .collect();
    for key in clients {
        core.close(key, &Closed::local("as if the process had ended"));
    }
    world.turn_until((0, 0));
    world.call(&channel, "over another connection");
}
