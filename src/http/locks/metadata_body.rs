//! Metadata in answers.

use serde::{Serialize, Serializer};

use crate::lock::Metadata;

/// Metadata as a JSON object; an empty one if there is none.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct MetadataBody(pub(in crate::http) Metadata);

// === impl MetadataBody ===

impl Serialize for MetadataBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}
