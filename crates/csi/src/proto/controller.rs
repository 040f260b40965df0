//! Messages of the service Controller. Those with secrets have no `Debug`.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

use super::volume::{
    CapacityRange, Topology, TopologyRequirement, Volume, VolumeCapability, VolumeContentSource,
};

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub secrets: BTreeMap<String, String>,
    #[prost(message, optional, tag = "6")]
    pub volume_content_source: Option<VolumeContentSource>,
    #[prost(message, optional, tag = "7")]
    pub accessibility_requirements: Option<TopologyRequirement>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub mutable_parameters: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CreateVolumeResponse {
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct DeleteVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub secrets: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct DeleteVolumeResponse {}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct ValidateVolumeCapabilitiesRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub volume_context: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub secrets: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValidateVolumeCapabilitiesResponse {
    #[prost(message, optional, tag = "1")]
    pub confirmed: Option<Confirmed>,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Confirmed {
    #[prost(btree_map = "string, string", tag = "1")]
    pub volume_context: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub parameters: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetCapacityRequest {
    #[prost(message, repeated, tag = "1")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub parameters: BTreeMap<String, String>,
    #[prost(message, optional, tag = "3")]
    pub accessible_topology: Option<Topology>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetCapacityResponse {
    #[prost(int64, tag = "1")]
    pub available_capacity: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ControllerGetCapabilitiesRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct ControllerGetCapabilitiesResponse {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<ControllerServiceCapability>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ControllerServiceCapability {
    #[prost(oneof = "ControllerCapabilityType", tags = "1")]
    pub r#type: Option<ControllerCapabilityType>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum ControllerCapabilityType {
    #[prost(message, tag = "1")]
    Rpc(ControllerRpc),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ControllerRpc {
    #[prost(enumeration = "ControllerRpcType", tag = "1")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ControllerRpcType {
    Unknown = 0,
    CreateDeleteVolume = 1,
    GetCapacity = 4,
    ExpandVolume = 9,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct ControllerExpandVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub secrets: BTreeMap<String, String>,
    #[prost(message, optional, tag = "4")]
    pub volume_capability: Option<VolumeCapability>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ControllerExpandVolumeResponse {
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    #[prost(bool, tag = "2")]
    pub node_expansion_required: bool,
}
