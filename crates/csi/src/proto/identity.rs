//! Messages of the service Identity.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetPluginInfoRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct GetPluginInfoResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub vendor_version: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub manifest: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetPluginCapabilitiesRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct GetPluginCapabilitiesResponse {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<PluginCapability>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct PluginCapability {
    #[prost(oneof = "PluginCapabilityType", tags = "1, 2")]
    pub r#type: Option<PluginCapabilityType>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum PluginCapabilityType {
    #[prost(message, tag = "1")]
    Service(PluginService),
    #[prost(message, tag = "2")]
    VolumeExpansion(VolumeExpansion),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct PluginService {
    #[prost(enumeration = "PluginServiceType", tag = "1")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum PluginServiceType {
    Unknown = 0,
    ControllerService = 1,
    VolumeAccessibilityConstraints = 2,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct VolumeExpansion {
    #[prost(enumeration = "VolumeExpansionType", tag = "1")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum VolumeExpansionType {
    Unknown = 0,
    Online = 1,
    Offline = 2,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ProbeRequest {}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ProbeResponse {
    /// A `google.protobuf.BoolValue`.
    #[prost(message, optional, tag = "1")]
    pub ready: Option<bool>,
}
