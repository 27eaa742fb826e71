import { Empty } from "../ui/empty.tsx";

export function ServicePage() {
  return <Empty title="Service" />;
}
