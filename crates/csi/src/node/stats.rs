//! NodeGetVolumeStats: free space, and whether a daemon serves the volume.

use super::NodeService;
use crate::commands::{QUERY_TIMEOUT, Space};
use crate::mount_table;
use crate::proto::{
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, Unit, VolumeCondition, VolumeUsage,
};
use crate::request;
use crate::status::{Result, internal, not_found};

impl NodeService {
    /// Measures a volume at one of its paths. Also answers for a volume whose daemon has died or hangs.
    pub(super) fn stats(&self, request: &NodeGetVolumeStatsRequest) -> Result<NodeGetVolumeStatsResponse> {
        let id = request::volume_id(&request.volume_id)?;
        if request.volume_path.is_empty() {
            return request::path("volume_path", "").map(|_| NodeGetVolumeStatsResponse::default());
        }
        let stage = self.stages.get(id).map_err(internal)?;
        let stage =
            stage.ok_or_else(|| not_found(format_args!("the volume {id} is not staged on this node")))?;
        let no_volume = || not_found(format_args!("the volume {id} is not at {}", request.volume_path));
        let path = request::path("volume_path", &request.volume_path).map_err(|_| no_volume())?;
        let mount = mount_table::at(&path)?.ok_or_else(no_volume)?;
        let staged = mount_table::at(&stage.staging_path)?;
        if staged.as_ref().is_some_and(|staged| staged.dev != mount.dev) {
            return Ok(abnormal("this path shows a file system whose daemon has died: delete the pod"));
        }
        if staged.is_none() {
            return Ok(abnormal("the volume was unmounted by somebody else"));
        }
        if !self.commands.is_served(&stage.staging_path) {
            return Ok(abnormal("no daemon serves the volume: the next pod that uses it starts one"));
        }
        if self.queries.running_for(id).is_some_and(|time| time > QUERY_TIMEOUT) {
            return Ok(abnormal("the volume does not answer"));
        }
        match self.commands.space(&path, self.queries.begin(id)?) {
            Some(space) => Ok(NodeGetVolumeStatsResponse {
                usage: usage(space),
                volume_condition: Some(VolumeCondition {
                    abnormal: false,
                    message: "a daemon serves the volume".to_owned(),
                }),
            }),
            None => Ok(abnormal("the volume does not answer")),
        }
    }
}

fn abnormal(message: &str) -> NodeGetVolumeStatsResponse {
    let condition = VolumeCondition { abnormal: true, message: message.to_owned() };
    NodeGetVolumeStatsResponse { usage: Vec::new(), volume_condition: Some(condition) }
}

fn usage(space: Space) -> Vec<VolumeUsage> {
    let of = |available: u64, total: u64, unit: Unit| {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let used = number(total.saturating_sub(available));
        VolumeUsage { available: number(available), total: number(total), used, unit: unit as i32 }
    };
    let mut usage = vec![of(space.free_bytes, space.total_bytes, Unit::Bytes)];
    if space.inodes > 0 {
        usage.push(of(space.free_inodes, space.inodes, Unit::Inodes));
    }
    usage
}
