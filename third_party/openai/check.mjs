// Drives a front end with OpenAI's own client: node check.mjs BASE_URL KEY. The server of the test answers 12 tokens to
// what names no bound, refuses prompts with "refuse", and fails prompts with "too long".
import OpenAI, { toFile } from 'openai';

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 30000 });
let passed = 0;
function check(what, ok, got) {
  if (!ok) {
    console.error(`FAIL ${what}: ${JSON.stringify(got)}`);
    process.exit(1);
  }
  passed++;
}
async function fails(what, kind, status, code, call) {
  try {
    check(what, false, await call());
  } catch (e) {
    check(what, e instanceof kind && e.status === status && e.code === code, { name: e.constructor.name, status: e.status, code: e.code, message: e.message });
    return e;
  }
}

const models = [];
for await (const m of client.models.list()) models.push(m.id);
check('models', models.includes('m'), models);
check('model', (await client.models.retrieve('m')).id === 'm');

const whole = await client.completions.create({ model: 'm', prompt: 'hello', max_tokens: 9 });
check('completion', whole.choices[0].text.length === 9 && whole.choices[0].finish_reason === 'length', whole);
check('usage', whole.usage.completion_tokens === 9 && whole.usage.total_tokens === whole.usage.prompt_tokens + 9, whole.usage);
let text = '';
for await (const part of await client.completions.create({ model: 'm', prompt: 'hello', max_tokens: 9, stream: true })) text += part.choices[0].text;
check('streamed completion is the same length', text.length === 9, text);

const messages = [{ role: 'system', content: 'be brief' }, { role: 'user', content: [{ type: 'text', text: 'hello' }] }];
const chat = await client.chat.completions.create({ model: 'm', messages });
check('chat', chat.choices[0].message.role === 'assistant' && chat.choices[0].message.content.length === 12, chat);
text = '';
let usage = null, finish = null, role = null;
for await (const part of await client.chat.completions.create({ model: 'm', messages, stream: true, stream_options: { include_usage: true } })) {
  if (part.choices.length) {
    text += part.choices[0].delta.content ?? '';
    role ??= part.choices[0].delta.role;
    finish = part.choices[0].finish_reason ?? finish;
  }
  usage = part.usage ?? usage;
}
check('streamed chat', text === chat.choices[0].message.content && finish === 'length' && role === 'assistant', { text, finish, role });
check('usage of a stream', usage?.completion_tokens === 12, usage);
const helper = client.chat.completions.stream({ model: 'm', messages });
check('stream helper', (await helper.finalContent()) === text);

// Answers that are more than a text: calls of tools, probabilities, several of them.
const tools = [{ type: 'function', function: { name: 'look_up', parameters: { type: 'object', properties: { of: { type: 'string' } } } } }];
const called = await client.chat.completions.create({ model: 'm', messages, tools, tool_choice: 'required' });
const call = called.choices[0].message.tool_calls[0];
check('tool call', called.choices[0].finish_reason === 'tool_calls' && called.choices[0].message.content === null && call.id === 'call_0' && call.function.name === 'look_up' && JSON.parse(call.function.arguments).of.length === 12, called);
const calling = client.chat.completions.stream({ model: 'm', messages, tools, tool_choice: 'required' });
const streamedCall = (await calling.finalChatCompletion()).choices[0];
check('streamed tool call', streamedCall.finish_reason === 'tool_calls' && JSON.parse(streamedCall.message.tool_calls[0].function.arguments).of.length === 12, streamedCall);
const probable = await client.chat.completions.create({ model: 'm', messages, logprobs: true, top_logprobs: 0 });
const tokens = probable.choices[0].logprobs.content;
check('logprobs', tokens.length === 12 && tokens[0].logprob === -0.5 && tokens.map((t) => t.token).join('') === probable.choices[0].message.content, probable);
const probableStream = await client.chat.completions.stream({ model: 'm', messages, logprobs: true }).finalChatCompletion();
check('streamed logprobs', probableStream.choices[0].logprobs.content.length === 12, probableStream);
const two = await client.chat.completions.create({ model: 'm', messages, n: 2 });
check('two answers', two.choices.length === 2 && two.choices[1].index === 1 && two.choices.every((c) => c.message.content.length === 12) && two.usage.completion_tokens === 24, two);
const both = ['', ''];
for await (const part of await client.completions.create({ model: 'm', prompt: 'hello', max_tokens: 9, n: 2, logprobs: 1, stream: true })) for (const c of part.choices) both[c.index] += c.text;
check('two streamed completions', both[0].length === 9 && both[1].length === 9, both);
const listed = await client.completions.create({ model: 'm', prompt: ['a', 'b'], max_tokens: 3 });
check('two prompts', listed.choices.length === 2, listed);

await fails('unknown model', OpenAI.NotFoundError, 404, 'model_not_found', () => client.completions.create({ model: 'none', prompt: 'x' }));
await fails('bad value', OpenAI.BadRequestError, 400, 'unsupported_value', () => client.completions.create({ model: 'm', prompt: 'x', best_of: 3 }));
await fails('wrong key', OpenAI.AuthenticationError, 401, 'unauthenticated', () => client.withOptions({ apiKey: 'another' }).models.list());
const full = await fails('overload', OpenAI.RateLimitError, 429, 'overload', () => client.completions.create({ model: 'm', prompt: 'refuse' }));
check('when to come again', full.headers.get('retry-after') === '2', full.headers.get('retry-after'));
await fails('error of a server', OpenAI.BadRequestError, 400, 'context_length_exceeded', () => client.completions.create({ model: 'm', prompt: 'too long', max_tokens: 1 }));

// Abort: the stream ends at once, and the request with it.
const long = await client.completions.create({ model: 'm', prompt: 'abort', max_tokens: 100000, stream: true });
let id = null;
for await (const part of long) {
  id = part.id;
  long.controller.abort();
}
let state = null;
for (let i = 0; i < 100 && state !== 'cancelled'; i++) {
  state = (await client.get(`/completions/${id}`)).status;
  await new Promise((r) => setTimeout(r, 20));
}
check('abort', state === 'cancelled', state);

// A client that tries again with its key gets the answer that it had.
const keyed = () => client.completions.create({ model: 'm', prompt: 'once' }, { idempotencyKey: 'npm-1', headers: { 'Idempotency-Key': 'npm-1' } });
check('tried again', (await keyed()).id === (await keyed()).id);
check('class', (await client.completions.create({ model: 'm', prompt: 'x' }, { headers: { 'X-SLO-Class': 'batch' } })).choices.length === 1);

const lines = Array.from({ length: 20 }, (_, i) => JSON.stringify({ custom_id: `n${i}`, method: 'POST', url: '/v1/chat/completions', body: { model: 'm', messages: [{ role: 'user', content: i === 7 ? 'too long' : `line ${i}` }] } }));
const file = await client.files.create({ file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'), purpose: 'batch' });
let batch = await client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h', metadata: { from: 'npm' } });
while (!['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) {
  await new Promise((r) => setTimeout(r, 20));
  batch = await client.batches.retrieve(batch.id);
}
check('batch', batch.status === 'completed' && batch.request_counts.completed === 19 && batch.request_counts.failed === 1 && batch.metadata.from === 'npm', batch);
const results = (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n').map((l) => JSON.parse(l));
check('results', results.length === 19 && results.every((r) => r.response.status_code === 200 && r.response.body.choices[0].message.content.length === 12), results[0]);
const bad = JSON.parse(await (await client.files.content(batch.error_file_id)).text());
check('errors of a batch', bad.custom_id === 'n7' && bad.response.status_code === 400, bad);
const batches = [];
for await (const b of client.batches.list({ limit: 1 })) batches.push(b.id);
check('list of batches', batches.includes(batch.id), batches);
const files = [];
for await (const f of client.files.list({ limit: 2 })) files.push(f.id);
check('list of files', files.length >= 3 && files.includes(file.id), files);
check('delete', (await client.files.delete(file.id)).deleted === true);
await fails('deleted file', OpenAI.NotFoundError, 404, 'not_found', () => client.files.retrieve(file.id));
const slow = await client.files.create({ file: await toFile(Buffer.from(JSON.stringify({ custom_id: 'a', method: 'POST', url: '/v1/completions', body: { model: 'm', prompt: 'x', max_tokens: 100000 } })), 'in.jsonl'), purpose: 'batch' });
batch = await client.batches.create({ input_file_id: slow.id, endpoint: '/v1/completions', completion_window: '24h' });
batch = await client.batches.cancel(batch.id);
check('cancelling', ['cancelling', 'cancelled'].includes(batch.status), batch);
while (batch.status !== 'cancelled') {
  await new Promise((r) => setTimeout(r, 20));
  batch = await client.batches.retrieve(batch.id);
}
console.log(`npm openai: ${passed} checks passed`);
