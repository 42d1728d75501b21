//! The route guide and hello world, served and called in one process over TCP, in each of the four ways.

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fulmar::{Code, Duplex, LocalReactor, Request, RunningServer, Server, Status};
use fulmar_examples::helloworld::HelloRequest;
use fulmar_examples::helloworld::greeter_client::GreeterClient;
use fulmar_examples::helloworld::greeter_client::blocking::GreeterClient as BlockingGreeter;
use fulmar_examples::helloworld::greeter_server::GreeterServer;
use fulmar_examples::routeguide::route_guide_client::RouteGuideClient;
use fulmar_examples::routeguide::route_guide_client::blocking::RouteGuideClient as BlockingGuide;
use fulmar_examples::routeguide::route_guide_server::RouteGuideServer;
use fulmar_examples::routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary};
use fulmar_examples::{Guide, Hello, contains, distance_metres, features};

type Outcome = Result<(), Box<dyn Error>>;

/// No call of these tests takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn bound() -> Server {
    Server::builder()
        .reactors(2)
        .add_service(GreeterServer::new(Hello))
        .add_service(RouteGuideServer::new(Guide::new()))
        .bind("127.0.0.1:0")
        .expect("the system has a free port")
}

fn endpoint_of(server: &Server) -> String {
    format!("http://{}", server.local_addr().expect("the server is bound"))
}

/// A server in threads of its own.
fn spawned() -> (RunningServer, String) {
    let server = bound();
    let endpoint = endpoint_of(&server);
    (server.spawn().expect("the system has threads"), endpoint)
}

fn points() -> Vec<Point> {
    features().into_iter().filter_map(|feature| feature.location).collect()
}

fn southern_half() -> Rectangle {
    let corner = |latitude, sign: i32| Some(Point { latitude, longitude: sign * 1_800_000_000 });
    Rectangle { lo: corner(-900_000_000, -1), hi: corner(585_000_000, 1) }
}

fn features_in(rectangle: &Rectangle) -> Vec<Feature> {
    let inside =
        |feature: &Feature| contains(rectangle, &feature.location.expect("every feature has a location"));
    features().into_iter().filter(inside).collect()
}

/// What the guide must say about a way along all its places and one that is none.
fn expected_summary(way: &[Point]) -> RouteSummary {
    let distance: f64 = way.windows(2).map(|pair| distance_metres(&pair[0], &pair[1])).sum();
    RouteSummary {
        point_count: way.len() as i32,
        feature_count: way.len() as i32 - 1,
        distance: distance.round() as i32,
        elapsed_time: 0,
    }
}

fn way() -> Vec<Point> {
    let mut way = points();
    way.push(Point::default());
    way
}

fn note(location: Option<Point>, message: &str) -> RouteNote {
    RouteNote { location, message: message.to_owned() }
}

async fn travel(endpoint: &str) -> Outcome {
    let guide = RouteGuideClient::connect(endpoint).await?;

    for feature in features() {
        let point = feature.location.expect("every feature has a location");
        assert_eq!(guide.get_feature(point).await?.into_inner(), feature);
    }
    let nothing = guide.get_feature(Point { latitude: 1, longitude: 1 }).await?.into_inner();
    assert_eq!(nothing, Feature { name: String::new(), location: Some(Point { latitude: 1, longitude: 1 }) });

    let mut stream = guide.list_features(southern_half()).await?.into_inner();
    let mut listed = Vec::new();
    while let Some(feature) = stream.message().await? {
        listed.push(feature);
    }
    assert_eq!(listed, features_in(&southern_half()));
    assert!(!listed.is_empty() && listed.len() < features().len());

    let mut upload = guide.record_route(()).await?;
    for point in &way() {
        upload.send(point).await?;
    }
    let summary = upload.finish().await?.into_inner();
    assert_eq!(RouteSummary { elapsed_time: 0, ..summary }, expected_summary(&way()));

    let here = points().first().copied();
    let Duplex { mut requests, mut replies } = guide.route_chat(()).await?;
    requests.send(&note(here, "first")).await?;
    requests.send(&note(here, "second")).await?;
    assert_eq!(replies.message().await?, Some(note(here, "first")));
    requests.send(&note(here, "third")).await?;
    assert_eq!(replies.message().await?, Some(note(here, "first")));
    assert_eq!(replies.message().await?, Some(note(here, "second")));
    requests.finish();
    assert_eq!(replies.message().await?, None);
    Ok(())
}

#[test]
fn async_client_under_the_local_reactor_reaches_a_server_in_other_threads() -> Outcome {
    let (running, endpoint) = spawned();
    LocalReactor::new()?.block_on(travel(&endpoint))?;
    running.shutdown(Duration::ZERO)?;
    Ok(())
}

#[test]
fn both_ends_live_in_one_thread() -> Outcome {
    let server = bound();
    let endpoint = endpoint_of(&server);
    let mut reactor = LocalReactor::new()?;
    reactor.serve(server)?;
    reactor.block_on(travel(&endpoint))
}

#[test]
fn blocking_client_makes_the_four_kinds_of_call() -> Outcome {
    let (running, endpoint) = spawned();
    let mut guide = BlockingGuide::connect(&endpoint)?;

    for feature in features() {
        let point = feature.location.expect("every feature has a location");
        assert_eq!(guide.get_feature(point)?.into_inner(), feature);
    }

    let listed: Result<Vec<Feature>, _> = guide.list_features(southern_half())?.into_inner().collect();
    assert_eq!(listed?, features_in(&southern_half()));

    let mut upload = guide.record_route(())?;
    for point in &way() {
        upload.send(point)?;
    }
    let summary = upload.finish()?.into_inner();
    assert_eq!(RouteSummary { elapsed_time: 0, ..summary }, expected_summary(&way()));

    let here = points().first().copied();
    let mut chat = guide.route_chat(())?;
    chat.send(&note(here, "first"))?;
    chat.send(&note(here, "second"))?;
    assert_eq!(chat.message()?, Some(note(here, "first")));
    chat.finish_sending();
    assert_eq!(chat.message()?, None);

    running.shutdown(Duration::ZERO)?;
    Ok(())
}

/// Leaves a note and returns those that were there before.
fn leave(guide: &mut BlockingGuide, note: &RouteNote) -> Result<Vec<RouteNote>, Status> {
    let mut chat = guide.route_chat(())?;
    chat.send(note)?;
    chat.finish_sending();
    let mut before = Vec::new();
    while let Some(note) = chat.message()? {
        before.push(note);
    }
    Ok(before)
}

#[test]
fn notes_of_one_call_are_there_for_the_next() -> Outcome {
    let (running, endpoint) = spawned();
    let here = points().first().copied();
    let (first, second) = (note(here, "from the first"), note(here, "from the second"));
    assert_eq!(leave(&mut BlockingGuide::connect(&endpoint)?, &first)?, []);
    assert_eq!(leave(&mut BlockingGuide::connect(&endpoint)?, &second)?, [first]);
    running.shutdown(Duration::ZERO)?;
    Ok(())
}

#[test]
fn note_without_a_location_ends_the_call_with_a_status() -> Outcome {
    let (running, endpoint) = spawned();
    let mut guide = BlockingGuide::connect(&endpoint)?;
    let status = leave(&mut guide, &note(None, "nowhere")).expect_err("the note has no location");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "a note needs a location");

    // The connection is still good for other calls.
    assert_eq!(guide.get_feature(points()[0])?.into_inner(), features()[0]);
    running.shutdown(Duration::ZERO)?;
    Ok(())
}

#[test]
fn hello_world_answers_and_refuses() -> Outcome {
    let (running, endpoint) = spawned();
    let mut greeter = BlockingGreeter::connect(&endpoint)?;
    let reply = greeter.say_hello(HelloRequest { name: "größer".into() })?;
    assert_eq!(reply.into_inner().message, "Hello größer!");
    let status = greeter.say_hello(HelloRequest::default()).expect_err("nobody is to be greeted");
    assert_eq!(status.code(), Code::InvalidArgument);

    let greetings: Result<Vec<_>, _> =
        greeter.say_hello_stream_reply(HelloRequest { name: "you".into() })?.into_inner().collect();
    let greetings: Vec<String> = greetings?.into_iter().map(|greeting| greeting.message).collect();
    assert_eq!(greetings, ["Good morning you!", "Good day you!", "Good evening you!"]);
    running.shutdown(Duration::ZERO)?;
    Ok(())
}

#[test]
fn many_threads_share_one_async_client() -> Outcome {
    const THREADS: usize = 4;
    const CALLS: usize = 50;
    let (running, endpoint) = spawned();
    let greeter = LocalReactor::new()?.block_on(GreeterClient::connect(&endpoint))?;
    let (sender, receiver) = mpsc::channel();
    for thread in 0..THREADS {
        let (greeter, sender) = (greeter.clone(), sender.clone());
        thread::spawn(move || {
            let mut reactor = LocalReactor::new().expect("the system has an event queue");
            for call in 0..CALLS {
                let name = format!("{thread}-{call}");
                let request = Request::new(HelloRequest { name: name.clone() }).with_timeout(PATIENCE);
                let reply =
                    reactor.block_on(greeter.say_hello(request)).map(|reply| reply.into_inner().message);
                sender.send((name, reply)).expect("the test waits");
            }
        });
    }
    drop(sender);
    let mut answered = 0;
    while let Ok((name, reply)) = receiver.recv_timeout(PATIENCE) {
        assert_eq!(reply?, format!("Hello {name}!"));
        answered += 1;
    }
    assert_eq!(answered, THREADS * CALLS);
    running.shutdown(Duration::ZERO)?;
    Ok(())
}
