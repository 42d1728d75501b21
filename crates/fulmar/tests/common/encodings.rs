//! An encoding of the tests' own, and a service that tells how messages were sent.

use std::sync::Arc;

use fulmar::encoding::{Compressor, Decompressor, Encoding, EncodingError, Unfolded};
use fulmar::{Compress, Compression, Raw, Replies, Request, Response, Router, Service, Status, Streaming};

pub const PATH_UNARY: &str = "/demo.Scale/Unary";
pub const PATH_UPLOAD: &str = "/demo.Scale/Upload";
pub const PATH_CHAT: &str = "/demo.Scale/Chat";

/// Runs of bytes, each as its length and the byte.
#[derive(Clone, Copy)]
pub struct RunLength(pub &'static str);

impl Encoding for RunLength {
    fn name(&self) -> &str {
        self.0
    }

    fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(*self)
    }

    fn decompressor(&self) -> Box<dyn Decompressor> {
        Box::new(*self)
    }
}

impl Compressor for RunLength {
    fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let runs = message.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(255));
        runs.for_each(|run| out.extend_from_slice(&[run.len() as u8, run[0]]));
        Ok(())
    }
}

impl Decompressor for RunLength {
    fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError> {
        if message == b"panic" {
            panic!("the decompressor has had enough");
        }
        for run in message.chunks(2) {
            match *run {
                [length @ 1..=255, byte] => out.extend_from_slice(&[byte; 255][..usize::from(length)])?,
                _ => return Err(EncodingError::Corrupt("a run has a length and a byte".into())),
            }
        }
        Ok(())
    }
}

/// Says in each kind of call which messages were compressed.
#[derive(Default)]
pub struct Scale(Arc<()>);

impl Service for Scale {
    fn name(&self) -> &'static str {
        "demo.Scale"
    }

    fn register(&self, router: &mut Router) {
        router.unary(PATH_UNARY, &self.0, |_, request: Request<Raw>| async move { echo(request) });
        router.client_streaming(
            PATH_UPLOAD,
            &self.0,
            |_, mut requests: Request<Streaming<Raw>>| async move {
                let mut flags = Vec::new();
                while requests.message().await?.is_some() {
                    flags.push(flag(requests.get_ref().last_was_compressed()));
                }
                Ok(Response::new(Raw::from(flags)))
            },
        );
        router.bidi(PATH_CHAT, &self.0, chat);
    }
}

/// Echoes the message as `x-want` wants it, and says in the metadata how it came.
fn echo(request: Request<Raw>) -> Result<Response<Raw>, Status> {
    let wanted = request.metadata().get("x-want").map(wanted);
    let encoding = request.encoding().unwrap_or("none").to_owned();
    let flag = char::from(flag(request.was_compressed())).to_string();
    let mut response = Response::new(request.into_inner());
    response.metadata_mut().insert("x-encoding", &encoding).unwrap();
    response.metadata_mut().insert("x-flag", &flag).unwrap();
    if let Some(wanted) = wanted {
        response.set_compression(wanted);
    }
    Ok(response)
}

/// Echoes each message compressed or not as its first byte says: `y`, `n`, or what is the default.
async fn chat(
    _: Arc<()>,
    mut requests: Request<Streaming<Raw>>,
    mut replies: Replies<Raw>,
) -> Result<(), Status> {
    if let Some(want) = requests.metadata().get("x-want").map(wanted) {
        replies.set_compression(&want)?;
    }
    while let Some(message) = requests.message().await? {
        let compress = match message.as_ref().first() {
            Some(b'y') => Compress::Yes,
            Some(b'n') => Compress::No,
            _ => Compress::Default,
        };
        if message.as_ref().first() == Some(&b'o') {
            replies.set_compression(&Compression::Off)?;
        }
        replies.send_with(&message, compress).await?;
    }
    Ok(())
}

fn wanted(text: &str) -> Compression {
    match text {
        "off" => Compression::Off,
        "on" => Compression::On,
        "default" => Compression::Default,
        name => Compression::encoding(name.to_owned()),
    }
}

pub fn flag(was_compressed: bool) -> u8 {
    if was_compressed { b'c' } else { b'p' }
}
