package vllm

import (
	"fmt"

	"github.com/spf13/pflag"

	"inferplan/export"
	"inferplan/export/llmserver"
	"inferplan/formats"
	"inferplan/formats/llmcommand"
	"inferplan/formats/usage"
)

// Target returns the target.
func Target() *export.Target {
	loraRank := 0
	return llmserver.NewTarget(llmserver.Engine{
		Name: "vllm", Summary: "Servers of vLLM for a plan of language models",
		Description: `Write the commands that start a server of vLLM for every instance of a queue plan: a start script and a
compose file for each node, and plan serve and plan agent in front of them. An instance of several models is
a server for each, of which all but one sleep.`,
		Example: `  plan export vllm plan.json -o vllm --model chat-7b=Qwen/Qwen2.5-7B-Instruct --model code-13b=/models/code --model sql=/models/sql --per-node 8
  plan export vllm -o vllm --model chat-7b=/models/chat --model code-13b=/models/code --adapter sql=chat-7b,/adapters/sql --address a100-0=gpu1`,
		Image: "vllm/vllm-openai:latest", Cache: "/root/.cache/huggingface",
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&loraRank, "lora-rank", 0, "largest rank of the adapters (default: that of vLLM)")
		},
		Sleep: "/sleep?level=1",
		Processes: func(in *llmserver.Instance) ([]llmserver.Process, error) {
			if err := llmserver.RefuseCPU(in, "vLLM"); err != nil {
				return nil, err
			}
			if loraRank < 0 {
				return nil, usage.Errorf("--lora-rank: found %d, expected 1 or more", loraRank)
			}
			return llmserver.SleepingProcesses(in, func(m *llmserver.Model) llmserver.Process { return server(in, m, loraRank) }), nil
		},
		Lost: llmserver.CommonLost,
	})
}

// server returns the process of a model. Options that importers read, too, have their names in llmcommand.VLLM, which says
// of which version they are.
func server(in *llmserver.Instance, m *llmserver.Model, loraRank int) llmserver.Process {
	p := &llmcommand.VLLM
	args := []string{"vllm", "serve", m.Source, p.ServedName[0], m.Name, "--host", in.Listen(), "--port", fmt.Sprint(m.Port),
		p.TensorParallel[0], fmt.Sprint(in.TensorParallel), p.Sequences[0], fmt.Sprint(m.Sequences),
		p.TokenBudget[0], fmt.Sprint(in.TokenBudget)}
	environment := llmserver.Visible(in)
	if m.Context > 0 {
		args = append(args, p.Context[0], fmt.Sprint(m.Context))
	}
	if m.KVBytes > 0 {
		args = append(args, p.KVBytes[0], fmt.Sprint(m.KVBytes))
	}
	if in.Scheduling == formats.SchedulePriority {
		args = append(args, p.Priority[0], "priority")
	}
	if in.NoPrefixCache {
		args = append(args, p.NoPrefixCache[0])
	} else {
		args = append(args, "--enable-prefix-caching")
	}
	if len(in.Bases) > 1 {
		// The requests that put a server to sleep and wake it are of its development mode.
		args, environment = append(args, "--enable-sleep-mode"), append(environment, "VLLM_SERVER_DEV_MODE=1")
	}
	if n := len(m.Adapters); n > 0 {
		args = append(args, "--enable-lora", "--max-loras", fmt.Sprint(n))
		if loraRank > 0 {
			args = append(args, "--max-lora-rank", fmt.Sprint(loraRank))
		}
		args = append(args, p.Adapters[0])
		for _, a := range m.Adapters {
			args = append(args, a.Name+"="+a.Path)
		}
	}
	return llmserver.Process{Name: llmserver.ProcessName(in, m), Model: m.Name, Port: m.Port, Environment: environment, Arguments: args, Folders: llmserver.Folders(m)}
}
