//! The time of reads that do not say how long they may take: the cluster parameter `defaultMaxTimeMS`.

use crate::invocation::Invocation;
use auth::{Action, ActionSet, Target};
use bson::raw::{RawBsonRef, RawDocument};

/// A read that does not say how long it may take has the time that all have.
pub(crate) fn limit(call: &mut Invocation<'_>, is_resumed: bool) {
    let limit_ms = call.server.cluster_parameters.read_ms_max();
    if limit_ms == 0 || !call.command.is_timed_read || writes_results(call.body) {
        return;
    }
    let unlimited = ActionSet::of(&[Action::BypassDefaultMaxTimeMS]);
    if call.server.access.is_enabled() && call.rights.allow(Target::Cluster, unlimited) {
        return;
    }
    call.max_time_ms = limit_ms;
    if !is_resumed {
        call.operation.set_deadline_ms(limit_ms);
    }
}

/// Is it a pipeline that ends in `$out` or `$merge`?
fn writes_results(body: &RawDocument) -> bool {
    let last = body
        .get_array("pipeline")
        .ok()
        .and_then(|stages| stages.into_iter().flatten().last());
    let Some(RawBsonRef::Document(stage)) = last else {
        return false;
    };
    let name = stage.iter().flatten().next().map(|(name, _)| name);
    name.is_some_and(|name| matches!(name.as_str(), "$out" | "$merge"))
}
