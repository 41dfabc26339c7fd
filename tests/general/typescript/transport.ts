// The module `worker/transport.ts` that the recorded TypeScript worker imports, written anew for the tests:
// one POST of JSON to the broker's socket on a connection of its own, the answer bounded.

import { boundedText } from "../src/protocol.ts";

const SOCKET = "/broker/broker.sock";
const ANSWER_BYTES = 1024 * 1024;

export async function unixBrokerRequest(
	route: string,
	body: Record<string, unknown>,
): Promise<{ status: number; body: unknown }> {
	const response = await fetch(`http://broker${route}`, {
		unix: SOCKET,
		method: "POST",
		keepalive: false,
		redirect: "error",
		headers: {
			"content-type": "application/json",
			authorization: "Bearer sandbox-dummy-key",
		},
		body: JSON.stringify(body),
	});
	if (response.status !== 200 || !response.body)
		return { status: response.status, body: null };
	return { status: 200, body: JSON.parse(await boundedText(response.body, ANSWER_BYTES)) };
}
