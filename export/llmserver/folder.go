package llmserver

import (
	"fmt"
	"strings"

	"inferplan/export"
	"inferplan/formats/document"
)

// Quote returns a word as a shell reads it.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=./:,+@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// command returns a process as a command of a shell, an option a line.
func (s *Process) command() string {
	var b strings.Builder
	for _, variable := range s.Environment {
		b.WriteString(Quote(variable) + " ")
	}
	for i, word := range s.Arguments {
		switch {
		case i == 0:
		case strings.HasPrefix(word, "-"):
			b.WriteString(" \\\n  ")
		default:
			b.WriteString(" ")
		}
		b.WriteString(Quote(word))
	}
	return b.String()
}

const startHead = `#!/bin/sh
# Starts the servers of %s, and ends them when it is ended or one of them ends.
set -eu
cd "$(dirname "$0")"
servers=
trap 'kill $servers 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM

# ready PORT PID waits until the server answers.
ready() {
  until curl -fsS -o /dev/null "http://127.0.0.1:$1/health" 2>/dev/null; do
    kill -0 "$2" 2>/dev/null || { echo "the server on port $1 ended" >&2; exit 1; }
    sleep 1
  done
}
`

const startTail = `
# End when one of them ends.
while :; do
  for server in $servers; do kill -0 "$server" 2>/dev/null || exit 1; done
  sleep 1
done
`

// startScript returns the script that starts the servers of a node. Those that are to sleep do so before the next one
// takes the memory.
func (e *Engine) startScript(node *Node, starts [][]Process) string {
	var b strings.Builder
	fmt.Fprintf(&b, startHead, node.Name)
	for _, processes := range starts {
		for i := range processes {
			s := &processes[i]
			fmt.Fprintf(&b, "\n# %s\n%s &\nservers=\"$servers $!\"\n", s.Name, s.command())
			if i < len(processes)-1 {
				fmt.Fprintf(&b, "ready %d $!\n%s\n", s.Port, strings.Join(document.Map(e.sleepCommand(s), func(word *string) string { return Quote(*word) }), " "))
			}
		}
	}
	b.WriteString(startTail)
	return b.String()
}

// sleepCommand returns the command that puts a server to sleep.
func (e *Engine) sleepCommand(s *Process) []string {
	return []string{"curl", "-fsS", "-H", "Content-Type: application/json", "-d", "{}", fmt.Sprintf("http://127.0.0.1:%d%s", s.Port, e.Sleep)}
}

// agentScript returns the command that attaches the servers of an instance to a queue of several machines.
func agentScript(in *Instance, flags []string) string {
	return fmt.Sprintf(`#!/bin/sh
# Attaches instance %d to a queue on NATS: QUEUE=nats://HOST:4222,... ./agent-%[1]d.sh --queue-key FILE
exec plan agent --queue "${QUEUE:?expected nats://HOST:4222}" \
  %s "$@"
`, in.Index, strings.Join(flags, " \\\n  "))
}

// serversFile is the file from which the front end reads which servers there are.
const serversFile = "servers"

// serversText returns the file with the servers of all instances, a line each.
func serversText(servers []string) string {
	return `# Servers of the instances of the plan: N=URL, or N/MODEL=URL for one of several models. A line with a URL alone is a server that takes an
# instance which has none. plan serve follows every change of this file without a restart.
` + strings.Join(servers, "\n") + "\n"
}

// serveScript returns the command of the front end that reaches all servers itself.
func serveScript(adapters []string) string {
	return fmt.Sprintf(`#!/bin/sh
# Serves the plan in front of the servers in the file servers. Further flags of plan serve may follow: ./serve.sh --http 0.0.0.0:8000
cd "$(dirname "$0")"
exec plan serve plan.json \
  %s "$@"
`, strings.Join(append([]string{"--servers " + serversFile}, adapters...), " \\\n  "))
}

// describe adds to the README what to run.
func (e *Engine) describe(layout *Layout, folder *export.Folder) {
	var start, compose, agents strings.Builder
	var nodes strings.Builder
	nodes.WriteString("Copy the folder to every node. `start.sh` runs the servers in the foreground, from the programs on the node's PATH; `compose.yaml` runs them in containers.\n\n| node | address | instances |\n|---|---|---|\n")
	for n := range layout.Nodes {
		node := &layout.Nodes[n]
		var instances []string
		for i := range layout.Instances {
			if in := &layout.Instances[i]; in.Node == node {
				models := document.Map(in.Bases, func(m *Model) string { return m.Name })
				fmt.Fprintf(&agents, "QUEUE=nats://HOST:4222 nodes/%s/agent-%d.sh --queue-key FILE   # on %s\n", node.Name, in.Index, node.Address)
				instances = append(instances, fmt.Sprintf("%d (%s)", in.Index, strings.Join(models, ", ")))
			}
		}
		fmt.Fprintf(&nodes, "| %s | %s | %s |\n", node.Name, node.Address, strings.Join(instances, "; "))
		fmt.Fprintf(&start, "nodes/%s/start.sh   # on %s\n", node.Name, node.Address)
		fmt.Fprintf(&compose, "docker compose -f nodes/%s/compose.yaml up   # on %s\n", node.Name, node.Address)
	}
	folder.Steps = append(folder.Steps,
		export.Step{Title: "Start the servers", Text: strings.TrimRight(nodes.String(), "\n"), Commands: start.String()},
		export.Step{Title: "Or in containers", Text: "The nodes need Docker with compose, and the NVIDIA container toolkit where they have GPUs.", Commands: compose.String()},
		export.Step{Title: "Serve", Text: "One front end that reaches all servers. It reads them from the file `servers`, and follows its changes: a line more is a server more, and requests of a server whose line is gone go on at others.", Commands: "./serve.sh"},
		export.Step{Title: "Or serve from several machines", Text: "Front ends and agents share a queue on NATS. Give all of them the same --queue-key.", Commands: "plan serve plan.json --queue nats://HOST:4222 --queue-key FILE\n" + agents.String()})
}
