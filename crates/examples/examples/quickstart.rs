//! Serves and calls in one program, over TCP on this machine: `cargo run --release --example quickstart`.
//!
//! Hello world first, then the route guide with its four kinds of call, each with the blocking and with the async client,
//! then how long a call takes. The program checks what it gets, and fails where that is not what it should be.

use std::error::Error;
use std::time::{Duration, Instant};

use fulmar::{Code, Duplex, LocalReactor, Request, Server};
use fulmar_examples::helloworld::HelloRequest;
use fulmar_examples::helloworld::greeter_client::GreeterClient;
use fulmar_examples::helloworld::greeter_client::blocking::GreeterClient as BlockingGreeter;
use fulmar_examples::helloworld::greeter_server::GreeterServer;
use fulmar_examples::routeguide::route_guide_client::RouteGuideClient;
use fulmar_examples::routeguide::route_guide_client::blocking::RouteGuideClient as BlockingGuide;
use fulmar_examples::routeguide::route_guide_server::RouteGuideServer;
use fulmar_examples::routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary};
use fulmar_examples::{Guide, Hello, features};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    // The server runs in threads of its own; port 0 lets the system pick a free port.
    let server = Server::builder()
        .add_service(GreeterServer::new(Hello))
        .add_service(RouteGuideServer::new(Guide::new()))
        .bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", server.local_addr()?);
    let running = server.spawn()?;
    println!("a server listens on {endpoint}\n");

    println!("blocking clients: this thread does the I/O itself while it waits");
    hello_blocking(&endpoint)?;
    travel_blocking(&endpoint)?;

    println!("\nasync clients: under Fulmar's own reactor here, but any executor would do");
    LocalReactor::new()?.block_on(async {
        hello_async(&endpoint).await?;
        travel_async(&endpoint).await
    })?;

    println!("\nhow long a call takes, from the request to the decoded reply");
    measure(&endpoint)?;

    running.shutdown(Duration::from_secs(1))?;
    println!("\nthe server has ended in good order");
    Ok(())
}

fn hello_blocking(endpoint: &str) -> Outcome {
    let mut greeter = BlockingGreeter::connect(endpoint)?;

    let reply = greeter.say_hello(HelloRequest { name: "world".into() })?.into_inner();
    println!("  SayHello: {}", reply.message);
    check(reply.message == "Hello world!", "a greeting by name")?;

    // A failed call is a `Status`, with a code and a message.
    let status = greeter.say_hello(HelloRequest::default()).expect_err("nobody is to be greeted");
    println!("  SayHello to nobody: {status}");
    check(status.code() == Code::InvalidArgument, "a greeting without a name is refused")
}

async fn hello_async(endpoint: &str) -> Outcome {
    let greeter = GreeterClient::connect(endpoint).await?;

    let request = Request::new(HelloRequest { name: "world".into() }).with_timeout(Duration::from_secs(5));
    let mut greetings = greeter.say_hello_stream_reply(request).await?.into_inner();
    let mut count = 0;
    while let Some(greeting) = greetings.message().await? {
        println!("  SayHelloStreamReply: {}", greeting.message);
        count += 1;
    }
    check(count == 3, "three greetings")
}

/// The four kinds of call, blocking.
fn travel_blocking(endpoint: &str) -> Outcome {
    let mut guide = BlockingGuide::connect(endpoint)?;
    let way = way();

    // One request, one reply.
    let feature = guide.get_feature(way[0])?.into_inner();
    check_feature(&feature)?;

    // One request, a stream of replies: an iterator.
    let mut count = 0;
    for feature in guide.list_features(everywhere())?.into_inner() {
        feature?;
        count += 1;
    }
    check_count(count)?;

    // A stream of requests, one reply.
    let mut upload = guide.record_route(())?;
    for point in &way {
        upload.send(point)?;
    }
    check_summary(&upload.finish()?.into_inner(), &way)?;

    // A stream each way.
    let mut chat = guide.route_chat(())?;
    chat.send(&note(way[0], "first"))?;
    chat.send(&note(way[0], "second"))?;
    let answer = chat.message()?;
    chat.finish_sending();
    check(chat.message()?.is_none(), "one earlier note")?;
    check_answer(answer, "first")
}

/// The four kinds of call, async.
async fn travel_async(endpoint: &str) -> Outcome {
    let guide = RouteGuideClient::connect(endpoint).await?;
    let way = way();

    // One request, one reply.
    let feature = guide.get_feature(way[0]).await?.into_inner();
    check_feature(&feature)?;

    // One request, a stream of replies.
    let mut features = guide.list_features(everywhere()).await?.into_inner();
    let mut count = 0;
    while features.message().await?.is_some() {
        count += 1;
    }
    check_count(count)?;

    // A stream of requests, one reply.
    let mut upload = guide.record_route(()).await?;
    for point in &way {
        upload.send(point).await?;
    }
    check_summary(&upload.finish().await?.into_inner(), &way)?;

    // A stream each way.
    let Duplex { mut requests, mut replies } = guide.route_chat(()).await?;
    requests.send(&note(way[1], "third")).await?;
    requests.send(&note(way[1], "fourth")).await?;
    let answer = replies.message().await?;
    requests.finish();
    check(replies.message().await?.is_none(), "one earlier note")?;
    check_answer(answer, "third")
}

fn measure(endpoint: &str) -> Outcome {
    const CALLS: usize = 2_000;
    let mut greeter = BlockingGreeter::connect(endpoint)?;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = Instant::now();
        greeter.say_hello(HelloRequest { name: "world".into() })?;
        times.push(started.elapsed());
    }
    report("blocking", &mut times);

    times.clear();
    LocalReactor::new()?.block_on(async {
        let greeter = GreeterClient::connect(endpoint).await?;
        for _ in 0..CALLS {
            let started = Instant::now();
            greeter.say_hello(HelloRequest { name: "world".into() }).await?;
            times.push(started.elapsed());
        }
        Outcome::Ok(())
    })?;
    report("async", &mut times);
    Ok(())
}

fn report(client: &str, times: &mut [Duration]) {
    times.sort();
    let micros = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e6;
    println!(
        "  {client:8} {} calls one after the other: min {:.1} µs, median {:.1} µs, 99th percentile {:.1} µs",
        times.len(),
        micros(0),
        micros(50),
        micros(99)
    );
}

/// Every sixteenth of the places that the guide knows.
fn way() -> Vec<Point> {
    features().into_iter().filter_map(|feature| feature.location).step_by(16).collect()
}

fn everywhere() -> Rectangle {
    let corner = |sign: i32| Point { latitude: sign * 900_000_000, longitude: sign * 1_800_000_000 };
    Rectangle { lo: Some(corner(-1)), hi: Some(corner(1)) }
}

fn note(location: Point, message: &str) -> RouteNote {
    RouteNote { location: Some(location), message: message.to_owned() }
}

fn check_feature(feature: &Feature) -> Outcome {
    println!("  GetFeature: {}", feature.name);
    check(feature.name == features()[0].name, "the first place")
}

fn check_count(count: usize) -> Outcome {
    println!("  ListFeatures: {count} places");
    check(count == features().len(), "every place")
}

fn check_summary(summary: &RouteSummary, way: &[Point]) -> Outcome {
    let RouteSummary { point_count, feature_count, distance, .. } = *summary;
    println!("  RecordRoute: {point_count} points, {feature_count} of them known places, {distance} m");
    check(point_count as usize == way.len() && feature_count == point_count && distance > 0, "the whole way")
}

fn check_answer(answer: Option<RouteNote>, expected: &str) -> Outcome {
    let message = answer.map(|note| note.message).unwrap_or_default();
    println!("  RouteChat: the note there before was {message:?}");
    check(message == expected, "the earlier note")
}

fn check(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(format!("this is not what was expected: {what}").into()) }
}
