//! Handlers of all four kinds that do what the first byte of their request says, and may give their handles away.

use std::sync::{Arc, Mutex};

use fulmar::{Cancellation, Raw, Replies, Request, Response, Router, Service, Status, Streaming};

pub(crate) const UNARY: &str = "/field.Drops/Unary";
pub(crate) const UPLOAD: &str = "/field.Drops/Upload";
pub(crate) const DOWNLOAD: &str = "/field.Drops/Download";
pub(crate) const BIDI: &str = "/field.Drops/Bidi";

/// Something of a call that its handler has given away.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Stashed {
    Requests(Streaming<Raw>),
    Replies(Replies<Raw>),
    Cancellation(Cancellation),
}

pub(crate) type Stash = Arc<Mutex<Vec<Stashed>>>;

pub(crate) struct Drops(pub(crate) Stash);

/// What a handler does, by a byte of its request.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Works,
    Fails,
    Hangs,
    GivesAwayAndReturns,
    GivesAwayAndHangs,
}

impl Mood {
    fn of(message: &Raw) -> Self {
        let moods = [
            Self::Works,
            Self::Works,
            Self::Fails,
            Self::Hangs,
            Self::GivesAwayAndReturns,
            Self::GivesAwayAndHangs,
        ];
        moods[usize::from(message.as_ref().first().copied().unwrap_or(0)) % moods.len()]
    }

    fn gives_away(self) -> bool {
        matches!(self, Self::GivesAwayAndReturns | Self::GivesAwayAndHangs)
    }

    async fn end(self) -> Result<(), Status> {
        match self {
            Self::Fails => Err(Status::new(fulmar::Code::Aborted, "as it was told to")),
            Self::Hangs | Self::GivesAwayAndHangs => std::future::pending().await,
            Self::Works | Self::GivesAwayAndReturns => Ok(()),
        }
    }
}

fn keep(stash: &Stash, what: impl IntoIterator<Item = Stashed>) {
    stash.lock().unwrap().extend(what);
}

impl Service for Drops {
    fn name(&self) -> &'static str {
        "field.Drops"
    }

    fn register(&self, router: &mut Router) {
        let stash = Arc::new(self.0.clone());
        router.unary(UNARY, &stash, |stash, request: Request<Raw>| async move {
            let mood = Mood::of(request.get_ref());
            if mood.gives_away() {
                keep(&stash, [Stashed::Cancellation(request.cancellation())]);
            }
            mood.end().await.map(|()| Response::new(request.into_inner()))
        });
        router.client_streaming(UPLOAD, &stash, |stash, mut requests: Request<Streaming<Raw>>| async move {
            let Some(first) = requests.message().await? else { return Ok(Response::new(Raw::default())) };
            let mood = Mood::of(&first);
            if mood.gives_away() {
                let cancellation = requests.cancellation();
                keep(&stash, [Stashed::Requests(requests.into_inner()), Stashed::Cancellation(cancellation)]);
            } else {
                while mood == Mood::Works && requests.message().await?.is_some() {}
            }
            mood.end().await.map(|()| Response::new(first))
        });
        router.server_streaming(
            DOWNLOAD,
            &stash,
            |stash, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                let mood = Mood::of(request.get_ref());
                for _ in 0..usize::from(request.get_ref().as_ref().get(1).copied().unwrap_or(0)) {
                    replies.send(request.get_ref()).await?;
                }
                if mood.gives_away() {
                    keep(&stash, [Stashed::Replies(replies)]);
                }
                mood.end().await
            },
        );
        router.bidi(
            BIDI,
            &stash,
            |stash, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                let Some(first) = requests.message().await? else { return Ok(()) };
                let mood = Mood::of(&first);
                replies.send(&first).await?;
                if mood.gives_away() {
                    keep(&stash, [Stashed::Replies(replies), Stashed::Requests(requests.into_inner())]);
                } else {
                    while mood == Mood::Works
                        && let Some(message) = requests.message().await?
                    {
                        replies.send(&message).await?;
                    }
                }
                mood.end().await
            },
        );
    }
}
