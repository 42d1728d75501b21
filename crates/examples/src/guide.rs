use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fulmar::{Replies, Request, Response, Status, Streaming};

use crate::features::features;
use crate::geometry::{contains, distance_metres};
use crate::routeguide::route_guide_server::RouteGuide;
use crate::routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary};

/// The notes kept in all. A server that runs for long needs a limit for whatever its callers leave behind.
const NOTES_MAX: usize = 10_000;

/// The route guide over a table of places.
#[derive(Debug)]
pub struct Guide {
    features: Vec<Feature>,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    at: HashMap<Point, Vec<RouteNote>>,
    count: usize,
}

impl Guide {
    /// A guide to the places of [`features`], where nobody has left a note yet.
    pub fn new() -> Self {
        Self { features: features(), notes: Mutex::default() }
    }

    fn feature_at(&self, point: &Point) -> Option<&Feature> {
        self.features.iter().find(|feature| feature.location.as_ref() == Some(point))
    }

    /// Keeps `note` and returns those that were there before.
    fn leave(&self, note: RouteNote) -> Result<Vec<RouteNote>, Status> {
        let Some(location) = note.location else {
            return Err(Status::invalid_argument("a note needs a location"));
        };
        let mut notes = self.notes();
        if notes.count == NOTES_MAX {
            return Err(Status::resource_exhausted(format!("there are {NOTES_MAX} notes already")));
        }
        notes.count += 1;
        let here = notes.at.entry(location).or_default();
        let before = here.clone();
        here.push(note);
        Ok(before)
    }

    /// Notes are whole at any time, so a panic elsewhere is no reason to give them up.
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Guide {
    fn default() -> Self {
        Self::new()
    }
}

impl RouteGuide for Guide {
    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        let point = request.into_inner();
        let feature = self.feature_at(&point).cloned();
        Ok(Response::new(feature.unwrap_or(Feature { name: String::new(), location: Some(point) })))
    }

    async fn list_features(
        &self,
        request: Request<Rectangle>,
        replies: &mut Replies<Feature>,
    ) -> Result<(), Status> {
        let rectangle = request.into_inner();
        for feature in &self.features {
            if feature.location.is_some_and(|location| contains(&rectangle, &location)) {
                // Waits while the caller is slower than we are.
                replies.send(feature).await?;
            }
        }
        Ok(())
    }

    async fn record_route(
        &self,
        mut points: Request<Streaming<Point>>,
    ) -> Result<Response<RouteSummary>, Status> {
        let started = Instant::now();
        let (mut summary, mut metres, mut last) = (RouteSummary::default(), 0.0, None);
        while let Some(point) = points.message().await? {
            summary.point_count += 1;
            summary.feature_count += i32::from(self.feature_at(&point).is_some());
            metres += last.map_or(0.0, |last| distance_metres(&last, &point));
            last = Some(point);
        }
        summary.distance = metres.round() as i32;
        summary.elapsed_time = started.elapsed().as_secs() as i32;
        Ok(Response::new(summary))
    }

    async fn route_chat(
        &self,
        mut notes: Request<Streaming<RouteNote>>,
        replies: &mut Replies<RouteNote>,
    ) -> Result<(), Status> {
        while let Some(note) = notes.message().await? {
            // The lock is not held while the answer waits for the caller.
            for earlier in self.leave(note)? {
                replies.send(&earlier).await?;
            }
        }
        Ok(())
    }
}
