// A worker in JavaScript, for Node.js and Bun: asks the model once, through the broker's socket.
import fs from "node:fs";
import http from "node:http";

const turn = JSON.parse(fs.readFileSync(0, "utf8"));
const messages = [{ role: "user", content: turn.text }];
const body = JSON.stringify({ model: turn.model, messages });
// The broker takes few headers: the client's own "connection" is not among them.
const headers = {
	host: "broker",
	"content-type": "application/json",
	"content-length": Buffer.byteLength(body),
	authorization: "Bearer sandbox-dummy-key",
};
const options = { socketPath: "/broker/broker.sock", path: "/model", method: "POST", headers };
const answer = await new Promise((resolve, reject) => {
	const request = http.request(options, (response) => {
		let text = "";
		response.on("data", (part) => (text += part));
		response.on("end", () => resolve(JSON.parse(text)));
	});
	request.on("error", reject);
	request.removeHeader("connection");
	request.end(body);
});
const text = answer.choices[0].message.content;
fs.appendFileSync("/workspace/said", text);
process.stdout.write(JSON.stringify({ ok: true, text: `${turn.text} ${text}` }));
