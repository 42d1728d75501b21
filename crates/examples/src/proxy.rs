use std::future::poll_fn;
use std::pin::pin;

use fulmar::{Channel, Duplex, MetadataMap, Raw, Replies, Request, Status, Streaming};

/// Makes the same call of the server behind `upstream` and passes everything on, in both directions: metadata, messages as they
/// are, the half-close, status, details and trailers. The call made here inherits the deadline of the one being handled, and when
/// that is cancelled, it is dropped and so cancelled too. Whoever sends waits for whoever reads.
///
/// # Errors
///
/// The status of the call, whatever made it fail.
pub async fn forward(
    upstream: Channel,
    mut requests: Request<Streaming<Raw>>,
    mut replies: Replies<Raw>,
) -> Result<(), Status> {
    let path = requests.path().to_owned();
    let metadata: MetadataMap = std::mem::take(requests.metadata_mut());
    let call = upstream.bidi::<Raw, Raw>(&path, Request::from_parts(metadata, ())).await?;
    let Duplex { requests: mut onwards, replies: mut back } = call;

    let send = async move {
        while let Some(message) = requests.message().await? {
            onwards.send(&message).await?;
        }
        onwards.finish();
        Ok::<(), Status>(())
    };
    let receive = async {
        let metadata = back.metadata().await?;
        replies.metadata(|place| *place = metadata);
        replies.send_metadata().await?;
        while let Some(message) = back.message().await? {
            replies.send(&message).await?;
        }
        replies.trailers(|place| place.extend_from(back.trailers()));
        Ok(())
    };

    // What ends the call is what is received: a server may answer before it has read everything.
    let (mut send, mut receive, mut is_sending) = (pin!(send), pin!(receive), true);
    poll_fn(|cx| {
        is_sending = is_sending && send.as_mut().poll(cx).is_pending();
        receive.as_mut().poll(cx)
    })
    .await
}
