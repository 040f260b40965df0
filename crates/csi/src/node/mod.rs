//! The service Node: mounts of this node.
//!
//! A volume is staged by one FUSE mount, and published by bind mounts of it. All work is blocking, so that it runs on threads for blocking
//! work, where it continues if the caller hangs up.

mod publish;
mod stage;
mod stats;

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::commands::Commands;
use crate::config::Config;
use crate::inflight::InFlight;
use crate::mount_table;
use crate::proto::service::node_server::Node;
use crate::proto::{
    NodeCapabilityType, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest,
    NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeRpc, NodeRpcType, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, Topology,
};
use crate::server::blocking;
use crate::stages::Stages;

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct NodeService {
    pub(crate) config: Arc<Config>,
    pub(crate) commands: Commands,
    pub(crate) stages: Stages,
    pub(crate) calls: InFlight,
    /// Queries of free space, which may never end.
    pub(crate) queries: InFlight,
}

impl NodeService {
    /// Hands the staged mounts that another program serves over to the program of the configuration. A mount that cannot be handed over
    /// is served as before.
    pub(crate) fn upgrade(&self) {
        let stages = self.stages.all().unwrap_or_default();
        for stage in stages {
            // A call that is running mounts with the new program, or unmounts.
            let Ok(_operation) = self.calls.begin(&stage.volume_id) else { continue };
            let path = &stage.staging_path;
            if !matches!(mount_table::at(path), Ok(Some(_))) {
                continue;
            }
            let Some(pid) = self.commands.pid(path) else { continue };
            if crate::program::runs(pid, &self.config.program) {
                continue;
            }
            match self.commands.upgrade(path) {
                Ok(()) => tracing::info!("upgraded the mount of the volume {}", stage.volume_id),
                Err(failure) => {
                    tracing::warn!("not upgraded: the volume {}: {}", stage.volume_id, failure.message());
                }
            }
        }
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let (node, request) = (self.clone(), request.into_inner());
        blocking("NodeStageVolume", request.volume_id.clone(), move || {
            node.stage(&request).map(|()| NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let (node, request) = (self.clone(), request.into_inner());
        blocking("NodeUnstageVolume", request.volume_id.clone(), move || {
            node.unstage(&request).map(|()| NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let (node, request) = (self.clone(), request.into_inner());
        blocking("NodePublishVolume", request.volume_id.clone(), move || {
            node.publish(&request).map(|()| NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let (node, request) = (self.clone(), request.into_inner());
        blocking("NodeUnpublishVolume", request.volume_id.clone(), move || {
            node.unpublish(&request).map(|()| NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let (node, request) = (self.clone(), request.into_inner());
        blocking("NodeGetVolumeStats", request.volume_id.clone(), move || node.stats(&request)).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capabilities =
            [NodeRpcType::StageUnstageVolume, NodeRpcType::GetVolumeStats, NodeRpcType::VolumeCondition]
                .map(|rpc| NodeServiceCapability {
                    r#type: Some(NodeCapabilityType::Rpc(NodeRpc { r#type: rpc as i32 })),
                })
                .into();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = [(self.config.topology_key(), self.config.node_id.clone())].into();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.config.node_id.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(Topology { segments }),
        }))
    }
}
