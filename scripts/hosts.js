// What scripts/hosts.sh found: reads its files in the current folder, prints a
// table, writes hosts.json, and fails where a request was lost or counted twice.
'use strict'
const fs = require('fs')
const [load, silence, where] = process.argv.slice(2)
const read = name => fs.readFileSync(name, 'utf8')
const lines = name => read(name).trim().split('\n')

const client = JSON.parse(read('load.json')), server = JSON.parse(read('served.json')), plan = JSON.parse(read('plan.json'))
const zero = Date.parse(client.started) / 1000
const events = lines('events.csv').map(l => ({ at: Number(l.split(',')[0]) - zero, name: l.split(',')[1] }))
const requests = lines('outcomes.csv').slice(1).map(l => {
  const [t, model, , outcome, us, reason] = l.split(',')
  return { due: Number(t), model, outcome, done: Number(t) + Number(us) / 1e6, reason }
})
const log = lines('serve.log').map(l => {
  const m = /^time=(\S+) level=\S+ msg="?(worker lost|worker back|a worker joined)/.exec(l)
  return m && { at: Date.parse(m[1]) / 1000 - zero, what: m[2] }
}).filter(Boolean)
const slo = plan.pool.models[0].slo_us / 1e6

const problems = [], lost = []
const count = f => requests.filter(f).length
const same = (what, a, b) => { if (a !== b) lost.push(`${what}: ${a}, expected ${b}`) }
const answered = count(r => r.outcome !== 'dropped'), dropped = count(r => r.outcome === 'dropped')
same('outcomes', requests.length, client.requests)
same('answered, by the client', client.completed, answered)
same('requests that the server counted', server.requests, client.requests)
same('requests that the server answered', server.completed, answered)
same('requests that the server dropped', server.dropped, dropped)
for (const [reason, n] of Object.entries(client.dropped_by_reason || {})) {
  if (reason.startsWith('error.') || reason === 'unanswered' || reason === 'client_overload') lost.push(`${n} requests ended with ${reason}`)
  else same(`dropped with ${reason}, by the server`, (server.dropped_by_reason || {})[reason], n)
}

const phases = []
for (let i = 0; i + 1 < events.length; i++) {
  const { at, name } = events[i], to = events[i + 1].at
  // What happens can harm those that came up to an SLO before it.
  const mine = requests.filter(r => (i === 0 || r.due + slo >= at) && (i + 2 === events.length || r.due + slo < to)), bad = mine.filter(r => r.outcome !== 'in_time')
  const good = requests.filter(r => r.outcome === 'in_time' && r.done >= at && r.done < to).map(r => r.done).concat(at, to).sort((a, b) => a - b)
  let silent = 0
  for (let k = 1; k < good.length; k++) silent = Math.max(silent, good[k] - good[k - 1])
  const first = what => { const e = log.find(e => e.at >= at && e.at < to && e.what === what); return e ? e.at - at : null }
  const by = {}
  for (const r of bad) by[r.reason || 'late'] = (by[r.reason || 'late'] || 0) + 1
  phases.push({
    after: name, at_s: at, seconds: to - at, requests: mine.length, in_time: mine.length - bad.length, not_in_time: by,
    degraded_from_s: bad.length ? bad[0].due - at : null, degraded_to_s: bad.length ? bad[bad.length - 1].due - at : null, longest_silence_s: silent,
    lost_noticed_s: first('worker lost'), back_s: first('worker back'),
  })
}
for (const p of phases) {
  if ((p.after === 'wire cut' || p.after === 'host killed') && p.lost_noticed_s === null) problems.push(`after "${p.after}" the server noticed no loss`)
  if ((p.after === 'wire mended' || p.after === 'host started') && p.back_s === null) problems.push(`after "${p.after}" the worker did not come back`)
}

const s = v => v === null ? '-' : v.toFixed(2)
const rows = [['after', 's', 'requests', 'in time', 'not in time', 'due between, s after', 'no answer for, s', 'noticed, s', 'back, s']]
for (const p of phases) {
  const bad = Object.entries(p.not_in_time).map(([k, n]) => `${n} ${k}`).join(', ') || '-'
  const span = p.degraded_from_s === null ? '-' : `${s(p.degraded_from_s)} to ${s(p.degraded_to_s)}`
  rows.push([p.after, p.seconds.toFixed(1), String(p.requests), String(p.in_time), bad, span, s(p.longest_silence_s), s(p.lost_noticed_s), s(p.back_s)])
}
const width = rows[0].map((_, i) => Math.max(...rows.map(r => r[i].length)))
console.log()
for (const r of rows) console.log(r.map((c, i) => i === 0 || i === 4 ? c.padEnd(width[i]) : c.padStart(width[i])).join('  '))
console.log(`${requests.length} requests at ${load} of the planned rate, SLO ${slo} s, a host is lost after ${silence} of silence, ${where || 'loopback'}: ` +
  `${answered} answered (${client.late} late), ${dropped} dropped with a reason, ${lost.length ? 'NOT every one exactly once' : 'every one exactly once'}`)
problems.push(...lost)
fs.writeFileSync('hosts.json', JSON.stringify({
  load: Number(load), slo_s: slo, silence, where: where || 'loopback', requests: requests.length, answered, late: client.late, dropped, dropped_by_reason: client.dropped_by_reason, phases, problems,
}, null, 1) + '\n')
for (const p of problems) console.error('hosts: ' + p)
process.exit(problems.length ? 1 : 0)
