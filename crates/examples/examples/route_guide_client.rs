//! Calls the route guide in each of the four ways, with the async client:
//! `cargo run --release --example route_guide_client -- --server http://127.0.0.1:50051`.
//!
//! It runs on Fulmar's own reactor, in this thread; any other executor would do as well. For the blocking client see
//! `quickstart`.

use std::error::Error;

use fulmar::{Duplex, LocalReactor};
use fulmar_examples::routeguide::route_guide_client::RouteGuideClient;
use fulmar_examples::routeguide::{Point, Rectangle, RouteNote};
use fulmar_examples::{arguments, features};

fn main() -> Result<(), Box<dyn Error>> {
    let [server] = arguments(["--server"])?;
    let server = server.as_deref().unwrap_or("http://127.0.0.1:50051");
    LocalReactor::new()?.block_on(travel(server))
}

async fn travel(server: &str) -> Result<(), Box<dyn Error>> {
    let guide = RouteGuideClient::connect(server).await?;
    let way: Vec<Point> = features().into_iter().filter_map(|feature| feature.location).step_by(16).collect();
    let (start, end) = (way[0], way[way.len() - 1]);

    ask(&guide, start).await?;
    ask(&guide, Point::default()).await?;
    list(&guide, Rectangle { lo: Some(start), hi: Some(end) }).await?;
    record(&guide, &way).await?;
    chat(&guide, start, end).await
}

/// One request, one reply.
async fn ask(guide: &RouteGuideClient, point: Point) -> Result<(), Box<dyn Error>> {
    let feature = guide.get_feature(point).await?.into_inner();
    if feature.name.is_empty() {
        println!("nothing is known at {point:?}");
    } else {
        println!("{} lies at {point:?}", feature.name);
    }
    Ok(())
}

/// One request, a stream of replies.
async fn list(guide: &RouteGuideClient, rectangle: Rectangle) -> Result<(), Box<dyn Error>> {
    let mut features = guide.list_features(rectangle).await?.into_inner();
    let mut count = 0;
    while let Some(feature) = features.message().await? {
        if count < 3 {
            println!("  {}", feature.name);
        }
        count += 1;
    }
    println!("  … {count} features lie between the start and the end");
    Ok(())
}

/// A stream of requests, one reply.
async fn record(guide: &RouteGuideClient, way: &[Point]) -> Result<(), Box<dyn Error>> {
    let mut upload = guide.record_route(()).await?;
    for point in way {
        // Waits while the server is slower than we are.
        upload.send(point).await?;
    }
    let summary = upload.finish().await?.into_inner();
    println!(
        "a way of {} points past {} features is {} m long",
        summary.point_count, summary.feature_count, summary.distance
    );
    Ok(())
}

/// A stream each way.
async fn chat(guide: &RouteGuideClient, start: Point, end: Point) -> Result<(), Box<dyn Error>> {
    let Duplex { mut requests, mut replies } = guide.route_chat(()).await?;
    for (location, message) in [(start, "setting out"), (end, "arrived"), (start, "back again")] {
        requests.send(&RouteNote { location: Some(location), message: message.to_owned() }).await?;
    }
    requests.finish();
    while let Some(note) = replies.message().await? {
        println!("somebody had left at {:?}: {}", note.location.unwrap_or_default(), note.message);
    }
    Ok(())
}
