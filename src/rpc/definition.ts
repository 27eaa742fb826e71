import type { DescMethod, DescService } from "@bufbuild/protobuf";
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";

/**
 * A generated service in the form that grpc-js wants, with plain bytes: the serializers do nothing
 * here. grpc-js turns an error of a deserializer into INTERNAL, but a request that cannot be
 * decoded is the caller's fault. So the handling code decodes.
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
