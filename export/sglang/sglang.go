package sglang

import (
	"fmt"

	"inferplan/export"
	"inferplan/export/llmserver"
	"inferplan/formats"
	"inferplan/formats/llmcommand"
)

// Target returns the target.
func Target() *export.Target {
	return llmserver.NewTarget(llmserver.Engine{
		Name: "sglang", Summary: "Servers of SGLang for a plan of language models",
		Description: `Write the commands that start a server of SGLang for every instance of a queue plan: a start script and a
compose file for each node, and plan serve and plan agent in front of them. An instance of several models is
a server for each, of which all but one have released their memory.`,
		Example: `  plan export sglang plan.json -o sglang --model chat-7b=Qwen/Qwen2.5-7B-Instruct --model code-13b=/models/code --adapter sql=chat-7b,/adapters/sql --per-node 8`,
		Image:   "lmsysorg/sglang:latest", Cache: "/root/.cache/huggingface",
		Sleep: "/release_memory_occupation",
		Processes: func(in *llmserver.Instance) ([]llmserver.Process, error) {
			if err := llmserver.RefuseCPU(in, "SGLang"); err != nil {
				return nil, err
			}
			return llmserver.SleepingProcesses(in, func(m *llmserver.Model) llmserver.Process { return server(in, m) }), nil
		},
		Lost: llmserver.CommonLost,
	})
}

// server returns the process of a model. Options that importers read, too, have their names in llmcommand.SGLang, which
// says of which version they are.
func server(in *llmserver.Instance, m *llmserver.Model) llmserver.Process {
	p := &llmcommand.SGLang
	args := []string{"python3", "-m", "sglang.launch_server", p.Model[0], m.Source, p.ServedName[0], m.Name, "--host", in.Listen(), "--port", fmt.Sprint(m.Port),
		p.TensorParallel[0], fmt.Sprint(in.TensorParallel), p.Sequences[0], fmt.Sprint(m.Sequences),
		p.TokenBudget[0], fmt.Sprint(in.TokenBudget)}
	if m.Context > 0 {
		args = append(args, p.Context[0], fmt.Sprint(m.Context))
	}
	if m.KVTokens > 0 {
		args = append(args, p.KVTokens[0], fmt.Sprint(m.KVTokens))
	}
	if in.Scheduling == formats.SchedulePriority {
		// Lower goes first in a plan.
		args = append(args, p.Priority[0], "--schedule-low-priority-values-first")
	} else {
		args = append(args, "--schedule-policy", "fcfs")
	}
	if in.NoPrefixCache {
		args = append(args, p.NoPrefixCache[0])
	}
	if len(in.Bases) > 1 {
		// Released weights come back from a copy in the host's memory.
		args = append(args, "--enable-memory-saver", "--enable-weights-cpu-backup")
	}
	if n := len(m.Adapters); n > 0 {
		// The base takes a place of a batch, too.
		args = append(args, "--enable-lora", "--max-loras-per-batch", fmt.Sprint(n+1), p.Adapters[0])
		for _, a := range m.Adapters {
			args = append(args, a.Name+"="+a.Path)
		}
	}
	return llmserver.Process{Name: llmserver.ProcessName(in, m), Model: m.Name, Port: m.Port, Environment: llmserver.Visible(in), Arguments: args, Folders: llmserver.Folders(m)}
}
