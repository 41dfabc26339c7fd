//! A warden whose walls are proved: the sealed profile's before anything runs, another's before its
//! first turn.

use std::path::Path;

use tokio::sync::OnceCell;
use turnjail_images::Image;
use turnjail_warden::seccomp::Profile;

use crate::client::Client;
use crate::record::Record;
use crate::{Isolation, StartError, canary};

/// A running warden and which kinds of jail were proved to be tight.
#[derive(Debug)]
pub(crate) struct Proved {
    client: Client,
    /// The built-in image, in whose root the proofs are made.
    image: Image,
    record: Option<Record>,
    general: OnceCell<()>,
    loopback: OnceCell<()>,
}

impl Proved {
    /// Proves the walls of the sealed profile, unless `directory` holds the record of a pass (see
    /// [`Record`]).
    pub(crate) async fn new(
        client: Client,
        image: Image,
        directory: Option<&Path>,
    ) -> Result<Self, StartError> {
        let record = directory.and_then(|directory| Record::open(directory, client.facts()));
        let (general, loopback) = (OnceCell::new(), OnceCell::new());
        let proved = Self { client, image, record, general, loopback };
        proved.prove(Isolation::SEALED).await?;
        Ok(proved)
    }

    /// The warden.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Proves the walls of a jail of this isolation, once.
    pub(crate) async fn ensure(&self, isolation: Isolation) -> Result<(), StartError> {
        let cell = match isolation {
            Isolation { profile: Profile::Sealed, .. } => return Ok(()),
            Isolation { loopback: false, .. } => &self.general,
            Isolation { loopback: true, .. } => &self.loopback,
        };
        let plain = Isolation { loopback: isolation.loopback, ..Isolation::GENERAL };
        cell.get_or_try_init(|| self.prove(plain)).await.copied()
    }

    async fn prove(&self, isolation: Isolation) -> Result<(), StartError> {
        if self.record.as_ref().is_some_and(|record| record.has(isolation)) {
            return Ok(());
        }
        canary::prove_profile(&self.client, &self.image, isolation).await?;
        if let Some(record) = &self.record {
            record.add(isolation);
        }
        Ok(())
    }
}
