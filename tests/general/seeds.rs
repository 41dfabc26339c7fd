//! The TypeScript worker that turnjail follows, taken from where its text is published beside this
//! repository; none of it is committed here.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of the worker that are published.
const FILES: [&str; 3] = ["worker/agent.ts", "worker/main.ts", "worker/memory.ts"];

/// Where the texts are: `TURNJAIL_SEEDS`, or `shared/seeds` beside the repository.
fn directory() -> PathBuf {
    std::env::var_os("TURNJAIL_SEEDS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/seeds"),
        PathBuf::from,
    )
}

/// The worker's files by their paths, or why there are none.
pub fn worker() -> Result<Vec<(&'static str, String)>, String> {
    let directory = directory();
    let entries = fs::read_dir(&directory)
        .map_err(|e| format!("{} cannot be read: {e} (set TURNJAIL_SEEDS)", directory.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    // Oldest first: the vectors were recorded with the first version.
    paths.sort();
    let texts: Vec<_> = paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let find = |file: &&'static str| {
        let text = texts.iter().find_map(|text| added(text, file));
        text.map(|text| (*file, text))
            .ok_or_else(|| format!("{} holds no package/{file}", directory.display()))
    };
    FILES.iter().map(find).collect()
}

/// The text of a file that a difference adds: its header, and then lines with a plus.
fn added(text: &str, file: &str) -> Option<String> {
    let header = format!("package/{file}");
    let mut lines = text.lines().skip_while(|line| *line != header).skip(1);
    let hunk = lines.find(|line| !line.is_empty())?;
    let count = hunk.strip_prefix("@@ -0,0 +1,")?.strip_suffix(" @@")?.parse::<usize>().ok()?;
    let added: Vec<_> = lines.take(count).map_while(|line| line.strip_prefix('+')).collect();
    (added.len() == count).then(|| added.join("\n") + "\n")
}
