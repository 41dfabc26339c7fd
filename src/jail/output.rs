//! Reading what a hostile program writes: so much and no more.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Reads `stream` to its end into memory, at most `limit` bytes. When there are more, calls `over`
/// once, and gives back what fits.
pub(crate) async fn read_bounded(
    mut stream: impl AsyncRead + Unpin,
    limit: usize,
    over: impl FnOnce(),
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let room = limit as u64 + 1;
    (&mut stream).take(room).read_to_end(&mut bytes).await?;
    if bytes.len() > limit {
        over();
        bytes.truncate(limit);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_itself_is_not_over() {
        for (length, expected) in [(0, false), (7, false), (8, false), (9, true), (1000, true)] {
            let mut over = false;
            let input = vec![b'x'; length];
            let read = read_bounded(&input[..], 8, || over = true).await.expect("memory reads");
            assert_eq!((read.len(), over), (length.min(8), expected), "{length}");
        }
    }
}
