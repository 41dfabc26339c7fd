// Ordinary work in JavaScript, under Node.js and under Bun: prints one line of JSON for each thing done.
import { spawn, spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import dns from "node:dns";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import zlib from "node:zlib";

const tell = (name, value) => fs.writeSync(1, `${JSON.stringify({ name, value })}\n`);

async function threads() {
	const jobs = [1, 2, 3].map(
		(number) =>
			new Promise((resolve, reject) => {
				const worker = new Worker(new URL(import.meta.url), { workerData: number });
				worker.once("message", resolve);
				worker.once("error", reject);
			}),
	);
	return Promise.all(jobs);
}

async function processes() {
	const self = process.execPath;
	const once = spawnSync(self, ["-e", "process.stdout.write('sync')"], { encoding: "utf8" });
	const child = spawn(self, ["-e", "process.stdin.pipe(process.stdout)"]);
	child.stdin.end("piped");
	let text = "";
	for await (const part of child.stdout) text += part;
	const long = spawn(self, ["-e", "setInterval(() => {}, 1000)"]);
	const ended = new Promise((resolve) => long.once("exit", (_, signal) => resolve(signal)));
	await new Promise((resolve) => long.once("spawn", resolve));
	long.kill("SIGTERM");
	return [once.stdout, text, await ended];
}

async function files() {
	const directory = "/workspace/notes/deep";
	await fs.promises.mkdir(directory, { recursive: true });
	const name = `${directory}/note.txt`;
	await fs.promises.writeFile(name, "grüße\n".repeat(1000));
	await fs.promises.rename(name, `${name}.old`);
	await fs.promises.symlink("note.txt.old", name);
	await fs.promises.copyFile(name, `${directory}/copy`);
	const packed = zlib.gzipSync(fs.readFileSync(name));
	fs.createWriteStream("/tmp/packed").end(packed);
	let refused;
	try {
		fs.writeFileSync("/usr/here", "x");
		refused = "written";
	} catch (error) {
		refused = error.code;
	}
	const entries = await fs.promises.readdir(directory);
	return [zlib.gunzipSync(packed).length, entries.sort(), refused];
}

function broker() {
	return new Promise((resolve, reject) => {
		const body = JSON.stringify({ from: process.versions.bun ? "bun" : "node" });
		const headers = { "content-type": "application/json", "content-length": body.length };
		const options = { socketPath: "/broker/broker.sock", path: "/model", method: "POST", headers };
		const request = http.request(options, (response) => {
			let text = "";
			response.on("data", (part) => (text += part));
			response.on("end", () => resolve([response.statusCode, JSON.parse(text)]));
		});
		request.on("error", reject);
		request.end(body);
	});
}

async function waits() {
	const start = performance.now();
	await Promise.all(Array.from({ length: 20 }, () => sleep(20)));
	let ticks = 0;
	await new Promise((resolve) => {
		const timer = setInterval(() => ++ticks === 5 && (clearInterval(timer), resolve()), 1);
	});
	return [ticks, performance.now() - start >= 15];
}

const names = () =>
	new Promise((resolve) =>
		dns.lookup("example.org", (error) => resolve(error ? "failed cleanly" : "resolved")),
	);

const network = () =>
	new Promise((resolve) => {
		const socket = net.connect(80, "192.0.2.1");
		socket.on("error", () => resolve("refused"));
		socket.on("connect", () => resolve("connected"));
	});

function proc() {
	const status = fs.readFileSync("/proc/self/status", "utf8");
	const field = (name) => new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)[1];
	const others = fs.readdirSync("/proc").filter((name) => !/^\d+$/.test(name));
	return [field("CapEff"), field("Seccomp"), others.sort()];
}

function compute() {
	// Enough for a just-in-time compiler.
	let sum = 0;
	for (let round = 0; round < 3e6; round++) sum = (sum + round * 7) % 1000003;
	const digest = createHash("sha256").update(randomBytes(1 << 20)).digest("hex");
	return [sum, digest.length];
}

if (isMainThread) {
	tell("threads", await threads());
	tell("processes", await processes());
	tell("files", await files());
	tell("broker", await broker());
	tell("waits", await waits());
	tell("names", await names());
	tell("network", await network());
	tell("proc", proc());
	tell("compute", compute());
	tell("identity", [process.cwd(), os.homedir(), os.hostname(), process.umask()]);
	process.exit(0);
} else {
	parentPort.postMessage(workerData * workerData);
}
