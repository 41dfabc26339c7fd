//! The messages of a turn, and making a request of them that fits.
//!
//! A message is kept as the JSON that is sent, so that nothing is written twice; only tool results
//! are kept as text, since they may have to be cut again.

use std::collections::VecDeque;

use turnjail_protocol::{WorkerCode, json, measure};

use crate::history::{Entry, Role, push_message};
use crate::transport::Request;

/// Everything that a model request of this turn is made of.
#[derive(Debug)]
pub struct Conversation<'a> {
    /// The model's name as JSON.
    model: Vec<u8>,
    system: Vec<u8>,
    history: VecDeque<Vec<u8>>,
    user: Vec<u8>,
    groups: VecDeque<Group>,
    /// The functions as JSON.
    tools: &'a str,
    /// The bytes of a request.
    budget: usize,
    /// Whether the newest group stays, its results cut evenly, where it would be dropped otherwise.
    keep_newest: bool,
}

/// A message with calls and their results.
#[derive(Debug)]
pub struct Group {
    /// The message as JSON.
    assistant: Vec<u8>,
    results: Vec<Outcome>,
}

/// The result of a call.
#[derive(Debug)]
pub struct Outcome {
    /// The call's id in the transcript.
    pub id: String,
    /// What the model reads.
    pub content: String,
}

/// One call as the transcript has it.
pub struct Transcript<'a> {
    /// A unique id.
    pub id: &'a str,
    /// A declared name.
    pub name: &'a str,
    /// JSON text, supposedly.
    pub arguments: &'a str,
}

impl Group {
    /// A message with calls, and no results yet.
    pub fn new<'c>(text: &str, calls: impl Iterator<Item = Transcript<'c>>) -> Self {
        let mut out = b"{\"role\":\"assistant\",\"content\":".to_vec();
        json::push_string(&mut out, text);
        out.extend_from_slice(b",\"tool_calls\":[");
        for (index, call) in calls.enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"id\":");
            json::push_string(&mut out, call.id);
            out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
            json::push_string(&mut out, call.name);
            out.extend_from_slice(b",\"arguments\":");
            json::push_string(&mut out, call.arguments);
            out.extend_from_slice(b"}}");
        }
        out.extend_from_slice(b"]}");
        Self { assistant: out, results: Vec::new() }
    }

    /// Appends the result of the next call.
    pub fn push(&mut self, outcome: Outcome) {
        self.results.push(outcome);
    }

    fn size(&self) -> usize {
        // Each message with the comma before it.
        1 + self.assistant.len()
            + self.results.iter().map(|result| 1 + result.size()).sum::<usize>()
    }

    /// Cuts the longest results to one length such that all together lose `excess` bytes.
    fn cut_evenly(&mut self, excess: usize) {
        let mut sizes: Vec<usize> =
            self.results.iter().map(|result| measure::json_bytes(&result.content)).collect();
        sizes.sort_unstable();
        let mut room = sizes.iter().sum::<usize>().saturating_sub(excess);
        let mut left = sizes.len();
        let mut level = usize::MAX;
        for size in sizes {
            if size > room / left {
                level = room / left;
                break;
            }
            room -= size;
            left -= 1;
        }
        for result in &mut self.results {
            result.content = measure::cut(&result.content, level).into_owned();
        }
    }
}

const RESULT: [&str; 3] = ["{\"role\":\"tool\",\"tool_call_id\":", ",\"content\":", "}"];

impl Outcome {
    fn size(&self) -> usize {
        RESULT.iter().map(|part| part.len()).sum::<usize>()
            + measure::json_bytes(&self.id)
            + measure::json_bytes(&self.content)
    }

    fn push_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(RESULT[0].as_bytes());
        json::push_string(out, &self.id);
        out.extend_from_slice(RESULT[1].as_bytes());
        json::push_string(out, &self.content);
        out.extend_from_slice(RESULT[2].as_bytes());
    }
}

/// What stands around model, messages and tools.
const FRAME: [&str; 4] = ["{\"model\":", ",\"messages\":[", "],\"tools\":", "}"];

/// What a conversation starts with.
pub struct Start<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The system message.
    pub system: &'a str,
    /// Earlier entries, oldest first.
    pub history: &'a [Entry],
    /// The user's entry.
    pub user: &'a str,
    /// The functions as JSON.
    pub tools: &'a str,
    /// The bytes that a request may have.
    pub budget: usize,
    /// Protocol 2: whether the newest group always stays.
    pub keep_newest: bool,
}

impl<'a> Conversation<'a> {
    /// A conversation without any answer of the model.
    pub fn new(start: &Start<'a>) -> Self {
        let mut model = Vec::new();
        json::push_string(&mut model, start.model);
        let mut system = b"{\"role\":\"system\",\"content\":".to_vec();
        json::push_string(&mut system, start.system);
        system.push(b'}');
        let mut user = Vec::new();
        push_message(&mut user, Role::User, start.user);
        let history = start.history.iter().map(|entry| {
            let mut out = Vec::new();
            entry.push_json(&mut out);
            out
        });
        Self {
            model,
            system,
            history: history.collect(),
            user,
            groups: VecDeque::new(),
            tools: start.tools,
            budget: start.budget,
            keep_newest: start.keep_newest,
        }
    }

    /// Appends a message with calls and their results.
    pub fn push(&mut self, group: Group) {
        self.groups.push_back(group);
    }

    /// The next request to the model. What does not fit is dropped for good: the oldest history
    /// first, then whole groups, oldest first.
    pub fn request(&mut self) -> Result<Request, WorkerCode> {
        let size = self.make_fit()?;
        let mut request = Request::new("/model", size);
        self.write(request.body());
        Ok(request)
    }

    fn make_fit(&mut self) -> Result<usize, WorkerCode> {
        let mut size = self.size();
        while size > self.budget {
            if let Some(dropped) = self.history.pop_front() {
                size -= 1 + dropped.len();
            } else if self.groups.len() > usize::from(self.keep_newest) {
                size -= self.groups.pop_front().map_or(0, |group| group.size());
            } else {
                let group = self.groups.front_mut().ok_or(WorkerCode::RequestBudget)?;
                group.cut_evenly(size - self.budget);
                size = self.size();
                if size > self.budget {
                    return Err(WorkerCode::RequestBudget);
                }
            }
        }
        Ok(size)
    }

    fn size(&self) -> usize {
        FRAME.iter().map(|part| part.len()).sum::<usize>()
            + self.model.len()
            + self.system.len()
            + self.history.iter().map(|entry| 1 + entry.len()).sum::<usize>()
            + 1
            + self.user.len()
            + self.groups.iter().map(Group::size).sum::<usize>()
            + self.tools.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(FRAME[0].as_bytes());
        out.extend_from_slice(&self.model);
        out.extend_from_slice(FRAME[1].as_bytes());
        out.extend_from_slice(&self.system);
        for message in self.history.iter().chain([&self.user]) {
            out.push(b',');
            out.extend_from_slice(message);
        }
        for group in &self.groups {
            out.push(b',');
            out.extend_from_slice(&group.assistant);
            for result in &group.results {
                out.push(b',');
                result.push_json(out);
            }
        }
        out.extend_from_slice(FRAME[2].as_bytes());
        out.extend_from_slice(self.tools.as_bytes());
        out.extend_from_slice(FRAME[3].as_bytes());
    }
}

#[cfg(test)]
mod tests;
