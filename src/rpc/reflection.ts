import { type DescFile, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { Server } from "@grpc/grpc-js";
import { ReflectionService } from "@grpc/reflection";
import { service as healthService } from "grpc-health-check";

/**
 * Server reflection, v1 and v1alpha, for these files, all their imports, and health. grpcurl and
 * similar tools need it to list, describe and call methods without a .proto file.
 */
export function addReflection(server: Server, files: readonly DescFile[]): void {
  const fileDescriptorProtos = [
    ...closureOf(files).map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto))),
    ...Object.values(healthService)
      .flatMap((method) => method.requestType.fileDescriptorProtos)
      .map(withMapEntries),
  ];
  // A package in the form of proto-loader; the reflection service reads only its descriptors.
  const format = "Protocol Buffer 3 DescriptorProto";
  new ReflectionService({ all: { format, type: {}, fileDescriptorProtos } }).addToServer(server);
}

function closureOf(files: readonly DescFile[]): DescFile[] {
  const found = new Set<DescFile>();
  const visit = (file: DescFile): void => {
    if (found.has(file)) return;
    found.add(file);
    for (const imported of file.dependencies) visit(imported);
  };
  for (const file of files) visit(file);
  return [...found];
}

/**
 * protobufjs, the source of health's descriptors, names the entry type of a map after its field.
 * protoc adds `Entry`, and Go, so also grpcurl, refuses the file without it.
 */
function withMapEntries(bytes: Uint8Array): Buffer {
  const file = fromBinary(FileDescriptorProtoSchema, bytes);
  for (const message of file.messageType) {
    for (const nested of message.nestedType) {
      if (nested.options?.mapEntry !== true || nested.name.endsWith("Entry")) continue;
      const { name } = nested;
      nested.name = `${name}Entry`;
      for (const field of message.field) {
        const isEntry = field.typeName === name || field.typeName.endsWith(`.${name}`);
        if (isEntry) field.typeName = `${field.typeName}Entry`;
      }
    }
  }
  return Buffer.from(toBinary(FileDescriptorProtoSchema, file));
}
