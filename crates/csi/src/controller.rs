//! The service Controller: creates directories for mirrors, and volumes, below a base directory or in stores.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tonic::{Code, Request, Response, Status};

use crate::catalog::{Catalog, Provisioned, remove_tree};
use crate::commands::Commands;
use crate::config::{Config, Provision};
use crate::inflight::InFlight;
use crate::parameters::{self, KIND, ProvisionSpec};
use crate::proto::service::controller_server::Controller;
use crate::proto::{
    Confirmed, ControllerCapabilityType, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerRpc, ControllerRpcType,
    ControllerServiceCapability, CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, Topology, TopologyRequirement,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
};
use crate::request;
use crate::secrets::Secrets;
use crate::server::blocking;
use crate::stages::Stages;
use crate::status::{self, Result, exists, internal, invalid, not_found, precondition};

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct ControllerService {
    pub(crate) config: Arc<Config>,
    pub(crate) provision: Provision,
    pub(crate) catalog: Catalog,
    pub(crate) commands: Commands,
    pub(crate) stages: Stages,
    pub(crate) calls: InFlight,
}

impl ControllerService {
    fn create(&self, request: &CreateVolumeRequest) -> Result<Volume> {
        let name = request::name("the name", &request.name)?;
        request::capabilities(&request.volume_capabilities)?;
        let capacity = request::capacity(request.capacity_range)?;
        if request.volume_content_source.is_some() {
            return Err(invalid("volumes cannot be created from snapshots or other volumes"));
        }
        if !request.mutable_parameters.is_empty() {
            return Err(invalid("volumes have no mutable parameters"));
        }
        let (spec, context) = parameters::provision(&request.parameters)?;
        let secrets = Secrets::parse(&request.secrets)?;
        self.check_topology(request.accessibility_requirements.as_ref())?;
        let id = Catalog::id(name);
        let _operation = self.calls.begin(&id)?;
        let old = self.catalog.get(&id).map_err(internal)?;
        if let Some(old) = &old
            && (old.name != name || !capacity.admits(old.capacity_bytes) || !is_part(&context, &old.context))
        {
            return Err(exists(format_args!(
                "the volume {name} exists with another size or other parameters"
            )));
        }
        let volume = match old {
            Some(old) if old.ready => old,
            _ => {
                let mut volume = Provisioned {
                    name: name.to_owned(),
                    capacity_bytes: capacity.required_bytes,
                    context,
                    remote: matches!(&spec, ProvisionSpec::Volume { meta, data, .. }
                        if meta.is_some() || data.is_some() || secrets.has_meta()),
                    ready: false,
                };
                let directory = self.catalog.directory(&id).ok_or_else(|| internal("a wrong id"))?;
                volume.context.extend(attributes(&spec, &id, &directory, &secrets));
                self.catalog.put(&id, &volume).map_err(internal)?;
                match &spec {
                    ProvisionSpec::Mirror { mode } => create_directory(&directory, *mode)?,
                    ProvisionSpec::Volume { data, encrypt, .. } => {
                        self.create_volume(&id, &volume, data.as_deref(), *encrypt, &directory, &secrets)?;
                    }
                }
                volume.ready = true;
                self.catalog.put(&id, &volume).map_err(internal)?;
                volume
            }
        };
        Ok(Volume {
            capacity_bytes: volume.capacity_bytes,
            volume_id: id,
            volume_context: volume.context,
            accessible_topology: if self.provision.shared { Vec::new() } else { vec![self.topology()] },
        })
    }

    /// Runs `shunt volume create`, unless an earlier attempt has created the volume.
    fn create_volume(
        &self,
        id: &str,
        volume: &Provisioned,
        data: Option<&str>,
        encrypt: bool,
        directory: &Path,
        secrets: &Secrets,
    ) -> Result<()> {
        if encrypt && !secrets.has_key() {
            return Err(invalid(
                "an encrypted volume needs the secret `key`, for the provisioner and for the nodes",
            ));
        }
        if volume.remote {
            // An attempt may have ended between the creation and the record of it.
            let mut words = vec!["set".to_owned()];
            words.extend(meta_option(volume).into_iter().chain(["--".to_owned(), id.to_owned()]));
            let exists = self.commands.volume(&words, id, id, secrets);
            if exists.is_ok() {
                return Ok(());
            }
        } else {
            remove_tree(directory).map_err(internal)?;
        }
        fs::create_dir_all(directory).map_err(internal)?;
        let mut words = vec!["create".to_owned()];
        words.extend(meta_option(volume));
        words.push(match data {
            Some(data) => format!("--data={}/{id}", data.trim_end_matches('/')),
            None => format!("--data=file:{}/data", directory.display()),
        });
        words.extend(encrypt.then(|| "--encrypt".to_owned()));
        if volume.capacity_bytes > 0 {
            words.push(format!("--quota={}", volume.capacity_bytes));
        }
        words.extend(["--".to_owned(), id.to_owned()]);
        let created = self.commands.volume(&words, id, id, secrets);
        self.commands.forget_keys(id);
        created
    }

    fn delete(&self, request: &DeleteVolumeRequest) -> Result<()> {
        let id = request::volume_id(&request.volume_id)?;
        let _operation = self.calls.begin(id)?;
        let Some(volume) = self.catalog.get(id).map_err(internal)? else { return Ok(()) };
        if self.stages.get(id).map_err(internal)?.is_some() {
            return Err(precondition(format_args!("the volume {id} is in use on this node")));
        }
        if volume.remote {
            return Err(precondition(format_args!(
                "the volume {id} is in a store that is not below the base directory, and is not deleted: use reclaimPolicy: \
                 Retain, and delete it there"
            )));
        }
        self.catalog.remove(id).map_err(internal)
    }

    fn expand(&self, request: &ControllerExpandVolumeRequest) -> Result<i64> {
        let id = request::volume_id(&request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(invalid("the capacity range is missing"));
        }
        let capacity = request::capacity(request.capacity_range)?;
        let secrets = Secrets::parse(&request.secrets)?;
        let _operation = self.calls.begin(id)?;
        let mut volume = self.find(id)?;
        // A volume that is large enough is not shrunk.
        if volume.capacity_bytes >= capacity.required_bytes {
            return Ok(volume.capacity_bytes);
        }
        if volume.context.get(KIND).is_some_and(|kind| kind == "volume") {
            let mut words = vec!["set".to_owned(), format!("--quota={}", capacity.required_bytes)];
            words.extend(meta_option(&volume).into_iter().chain(["--".to_owned(), id.to_owned()]));
            self.commands.volume(&words, id, id, &secrets)?;
            if self.stages.get(id).map_err(internal)?.is_none() {
                self.commands.forget_keys(id);
            }
        }
        volume.capacity_bytes = capacity.required_bytes;
        self.catalog.put(id, &volume).map_err(internal)?;
        Ok(volume.capacity_bytes)
    }

    fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse> {
        let id = request::volume_id(&request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(invalid("the volume capabilities are missing"));
        }
        self.find(id)?;
        if let Err(failure) = request::capabilities(&request.volume_capabilities) {
            let message = failure.message().to_owned();
            return Ok(ValidateVolumeCapabilitiesResponse { confirmed: None, message });
        }
        let confirmed = Some(Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
        });
        Ok(ValidateVolumeCapabilitiesResponse { confirmed, message: String::new() })
    }

    fn capacity(&self, request: &GetCapacityRequest) -> Result<i64> {
        let is_elsewhere = request
            .accessible_topology
            .as_ref()
            .is_some_and(|topology| !self.provision.shared && !self.is_here(topology));
        if is_elsewhere || request::capabilities(&request.volume_capabilities).is_err() {
            // Without capabilities the question is about all volumes.
            if is_elsewhere || !request.volume_capabilities.is_empty() {
                return Ok(0);
            }
        }
        let stat = rustix::fs::statvfs(self.catalog.base()).map_err(internal)?;
        Ok(i64::try_from(stat.f_bavail.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX))
    }

    fn find(&self, id: &str) -> Result<Provisioned> {
        let found = self.catalog.get(id).map_err(internal)?;
        found.ok_or_else(|| {
            not_found(format_args!("there is no volume {id} in {}", self.catalog.base().display()))
        })
    }

    /// The topology of the volumes of this plugin.
    fn topology(&self) -> Topology {
        Topology { segments: [(self.config.topology_key(), self.config.node_id.clone())].into() }
    }

    fn is_here(&self, topology: &Topology) -> bool {
        topology.segments.get(&self.config.topology_key()).is_none_or(|node| *node == self.config.node_id)
    }

    /// Refuses a volume for other nodes, as another instance of the plugin creates it.
    fn check_topology(&self, requirement: Option<&TopologyRequirement>) -> Result<()> {
        let requisite = requirement.map_or(&[][..], |requirement| &requirement.requisite);
        if self.provision.shared
            || requisite.is_empty()
            || requisite.iter().any(|topology| self.is_here(topology))
        {
            return Ok(());
        }
        Err(status::new(
            Code::ResourceExhausted,
            format_args!("only the node {} has volumes of this base directory", self.config.node_id),
        ))
    }
}

/// The attributes of a volume that the parameters do not have.
fn attributes(spec: &ProvisionSpec, id: &str, directory: &Path, secrets: &Secrets) -> Vec<(String, String)> {
    let directory = directory.to_string_lossy();
    match spec {
        ProvisionSpec::Mirror { .. } => vec![("source".to_owned(), directory.into_owned())],
        ProvisionSpec::Volume { meta, .. } => {
            // An address among the secrets may have a password.
            let local = (!secrets.has_meta()).then(|| format!("sqlite:{directory}/meta"));
            let meta = meta.clone().or(local).map(|meta| ("meta".to_owned(), meta));
            meta.into_iter().chain([("volume".to_owned(), id.to_owned())]).collect()
        }
    }
}

/// The option with the address of a volume's metadata, unless that is a secret.
fn meta_option(volume: &Provisioned) -> Option<String> {
    volume.context.get("meta").map(|meta| format!("--meta={meta}"))
}

/// Reports whether all entries of `part` are in `whole`.
fn is_part(
    part: &std::collections::BTreeMap<String, String>,
    whole: &std::collections::BTreeMap<String, String>,
) -> bool {
    part.iter().all(|(key, value)| whole.get(key) == Some(value))
}

fn create_directory(path: &Path, mode: u32) -> Result<()> {
    let cannot = |error| internal(format_args!("cannot create {}: {error}", path.display()));
    fs::create_dir_all(path).map_err(cannot)?;
    // Not limited by the umask.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(cannot)
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> std::result::Result<Response<CreateVolumeResponse>, Status> {
        let (service, request) = (self.clone(), request.into_inner());
        blocking("CreateVolume", request.name.clone(), move || {
            service.create(&request).map(|volume| CreateVolumeResponse { volume: Some(volume) })
        })
        .await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> std::result::Result<Response<DeleteVolumeResponse>, Status> {
        let (service, request) = (self.clone(), request.into_inner());
        blocking("DeleteVolume", request.volume_id.clone(), move || {
            service.delete(&request).map(|()| DeleteVolumeResponse {})
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> std::result::Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let (service, request) = (self.clone(), request.into_inner());
        blocking("ValidateVolumeCapabilities", request.volume_id.clone(), move || service.validate(request))
            .await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> std::result::Result<Response<GetCapacityResponse>, Status> {
        let (service, request) = (self.clone(), request.into_inner());
        blocking("GetCapacity", String::new(), move || {
            service.capacity(&request).map(|available_capacity| GetCapacityResponse { available_capacity })
        })
        .await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> std::result::Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = [
            ControllerRpcType::CreateDeleteVolume,
            ControllerRpcType::GetCapacity,
            ControllerRpcType::ExpandVolume,
        ]
        .map(|rpc| ControllerServiceCapability {
            r#type: Some(ControllerCapabilityType::Rpc(ControllerRpc { r#type: rpc as i32 })),
        })
        .into();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> std::result::Result<Response<ControllerExpandVolumeResponse>, Status> {
        let (service, request) = (self.clone(), request.into_inner());
        blocking("ControllerExpandVolume", request.volume_id.clone(), move || {
            let capacity_bytes = service.expand(&request)?;
            Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false })
        })
        .await
    }
}
