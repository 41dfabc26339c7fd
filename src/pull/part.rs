//! A part being written: never more than was promised, whatever a registry sends.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::fs::File;
use tokio::io::AsyncWrite;
use turnjail_images::ImageError;

use crate::Fetching;

/// A new file that takes so many bytes and no more.
pub(crate) struct Bounded<'t> {
    file: File,
    left: u64,
    told: &'t dyn Fetching,
}

impl<'t> Bounded<'t> {
    pub async fn create(
        path: &Path,
        size: u64,
        told: &'t dyn Fetching,
    ) -> Result<Self, ImageError> {
        let file = File::create_new(path).await.map_err(|source| ImageError::Io {
            action: "create",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { file, left: size, told })
    }
}

impl AsyncWrite for Bounded<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.len() as u64 > self.left {
            return Poll::Ready(Err(io::Error::other("it is larger than its manifest says")));
        }
        let written = Pin::new(&mut self.file).poll_write(context, buffer);
        if let Poll::Ready(Ok(written)) = &written {
            self.left -= *written as u64;
            self.told.advance(*written as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(context)
    }
}
