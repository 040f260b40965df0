//! The service Identity: name, version and capabilities of the plugin.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::config::Config;
use crate::proto::service::identity_server::Identity;
use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, PluginCapabilityType, PluginService, PluginServiceType, ProbeRequest, ProbeResponse,
    VolumeExpansion, VolumeExpansionType,
};

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct IdentityService {
    pub(crate) config: Arc<Config>,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.config.driver_name.clone(),
            vendor_version: self.config.version.clone(),
            manifest: [].into(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = |service: PluginServiceType| {
            PluginCapabilityType::Service(PluginService { r#type: service as i32 })
        };
        let mut types = Vec::new();
        if let Some(provision) = &self.config.provision {
            types.push(service(PluginServiceType::ControllerService));
            types.push(PluginCapabilityType::VolumeExpansion(VolumeExpansion {
                r#type: VolumeExpansionType::Online as i32,
            }));
            if !provision.shared {
                types.push(service(PluginServiceType::VolumeAccessibilityConstraints));
            }
        }
        let capabilities =
            types.into_iter().map(|r#type| PluginCapability { r#type: Some(r#type) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        // It listens only once it is ready.
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
