import { type DescFile, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { Server } from "@grpc/grpc-js";
import { ReflectionService } from "@grpc/reflection";
import { service as healthService } from "grpc-health-check";

/**
 * Server reflection, v1 and v1alpha, of these files, all they import, and health: what grpcurl and
 * its like need to list, describe and call without a .proto file at hand.
 */
export function addReflection(server: Server, files: readonly DescFile[]): void {
  const fileDescriptorProtos = [
    ...closureOf(files).map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto))),
    ...Object.values(healthService).flatMap((method) => method.requestType.fileDescriptorProtos),
  ];
  // A package as proto-loader makes it; the reflection service reads nothing but its descriptors.
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
