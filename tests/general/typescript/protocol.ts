// The module `src/protocol.ts` that the recorded TypeScript worker imports, written anew for the tests from
// docs of the protocol: shapes, names, and a bounded reader.

export const WORKSPACE_PATH = "/workspace";

export interface ToolSpec {
	name: string;
	description: string;
	parameters: Record<string, unknown>;
}

export interface SandboxTurn {
	text: string;
	speaker: { id: string; name: string };
	model: string;
	prompt: string;
	timeZone: string;
	reset?: boolean;
	tools: ToolSpec[];
	mcp: { server: string; tools: ToolSpec[] }[];
}

export interface SandboxReply {
	ok: boolean;
	text: string;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

const TOOL_NAME = /^[a-z][a-z0-9_]{0,47}$/;
const FUNCTION_NAME = /^[a-z][a-z0-9_]{0,63}$/;

export function validFunctionName(name: unknown): name is string {
	return typeof name === "string" && FUNCTION_NAME.test(name);
}

export function validCallId(id: unknown): id is string {
	return typeof id === "string" && id.length >= 1 && id.length <= 128;
}

function isToolSpec(spec: unknown): boolean {
	return (
		isRecord(spec) &&
		typeof spec.name === "string" &&
		TOOL_NAME.test(spec.name) &&
		typeof spec.description === "string" &&
		isRecord(spec.parameters)
	);
}

function isServer(server: unknown): boolean {
	return (
		isRecord(server) &&
		typeof server.server === "string" &&
		TOOL_NAME.test(server.server) &&
		Array.isArray(server.tools) &&
		server.tools.every(isToolSpec)
	);
}

export function isSandboxTurn(turn: unknown): turn is SandboxTurn {
	if (!isRecord(turn) || !isRecord(turn.speaker)) return false;
	const texts = [turn.text, turn.model, turn.prompt, turn.timeZone];
	const names = [turn.speaker.id, turn.speaker.name];
	return (
		[...texts, ...names].every((text) => typeof text === "string") &&
		(turn.reset === undefined || typeof turn.reset === "boolean") &&
		Array.isArray(turn.tools) &&
		turn.tools.every(isToolSpec) &&
		Array.isArray(turn.mcp) &&
		turn.mcp.every(isServer)
	);
}

/** Reads a stream to its end as UTF-8; more than `limit` bytes are an error. */
export async function boundedText(
	stream: AsyncIterable<Uint8Array>,
	limit: number,
): Promise<string> {
	const parts: Uint8Array[] = [];
	let size = 0;
	for await (const part of stream) {
		size += part.byteLength;
		if (size > limit) throw new Error("too many bytes");
		parts.push(part);
	}
	return new TextDecoder().decode(Buffer.concat(parts));
}
