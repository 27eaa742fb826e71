import type { DescMethod, DescService } from "@bufbuild/protobuf";
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";

/**
 * A generated service as grpc-js wants it, in bytes: what grpc-js calls a serializer does nothing
 * here. A deserializer that throws is INTERNAL to it, and a request that cannot be decoded is the
 * caller's fault, so decoding is left to whoever handles the call.
 */
export function definitionOf(service: DescService): ServiceDefinition {
  return Object.fromEntries(
    service.methods.map((method) => [method.localName, methodDefinitionOf(method)]),
  );
}

export function methodDefinitionOf(method: DescMethod): MethodDefinition<Buffer, Buffer> {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream:
      method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming",
    responseStream:
      method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming",
    requestSerialize: identity,
    requestDeserialize: identity,
    responseSerialize: identity,
    responseDeserialize: identity,
  };
}

function identity(bytes: Buffer): Buffer {
  return bytes;
}
