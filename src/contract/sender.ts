/** The sender of a message as the store keeps it: JSON text in the spelling of ProtoJSON. */
import { fromJsonString, toJsonString } from "@bufbuild/protobuf";
import { type Sender, SenderSchema } from "../../gen/ambient/v1/messages_pb.ts";

export function senderText(sender: Sender): string {
  return toJsonString(SenderSchema, sender);
}

export function senderOf(text: string): Sender {
  // A newer version of the service may have stored a field that this one does not know.
  return fromJsonString(SenderSchema, text, { ignoreUnknownFields: true });
}
