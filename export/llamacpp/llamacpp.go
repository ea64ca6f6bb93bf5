package llamacpp

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"inferplan/export"
	"inferplan/export/llmserver"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/llmcommand"
	"inferplan/formats/usage"
)

// Target returns the target.
func Target() *export.Target {
	return llmserver.NewTarget(llmserver.Engine{
		Name: "llamacpp", Summary: "Servers of llama.cpp and llama-swap for a plan of language models",
		Description: `Write the commands that start a llama-server for every instance of a queue plan: a start script and a
compose file for each node, and plan serve and plan agent in front of them. An instance of several models is
a llama-swap with a configuration, which runs a llama-server for one of them at a time.`,
		Example: `  plan export llamacpp plan.json -o llamacpp --model chat-7b=/models/chat.gguf --model code-13b=ggml-org/code-GGUF:Q8_0 --model sql=/models/sql.gguf
  plan export llamacpp -o llamacpp --model chat-7b=/models/chat.gguf --model code-13b=/models/code.gguf --adapter sql=chat-7b,/models/sql.gguf`,
		Image: "ghcr.io/mostlygeek/llama-swap:cuda", Cache: "/app/.cache/huggingface",
		Processes: processes,
		Lost: func(in *llmserver.Instance) []string {
			lines := llmserver.CommonLost(in)
			if in.Scheduling == formats.SchedulePriority {
				lines = append(lines, fmt.Sprintf("Instance %d was planned to order its queue by priority. llama-server runs first come, first served.", in.Index))
			}
			return lines
		},
	})
}

// processes returns the llama-server of an instance of one model, or the llama-swap of one with several.
func processes(in *llmserver.Instance) ([]llmserver.Process, error) {
	var folders []string
	for k := range in.Bases {
		m := &in.Bases[k]
		folders = append(folders, llmserver.Folders(m)...)
		for _, a := range m.Adapters {
			// llama-server names an adapter by its file.
			if name := strings.TrimSuffix(filepath.Base(a.Path), filepath.Ext(a.Path)); name != a.Name {
				return nil, usage.Errorf("--adapter %s: found the file %s, expected one called %s.gguf: llama-server names an adapter by its file", a.Name, a.Path, a.Name)
			}
			if len(in.Bases) > 1 {
				return nil, usage.Errorf("--adapter %s: found it on instance %d with several models, expected one: llama-swap takes no adapters", a.Name, in.Index)
			}
		}
	}
	if len(in.Bases) == 1 {
		m := &in.Bases[0]
		return []llmserver.Process{{
			Name: llmserver.ProcessName(in, m), Model: m.Name, Port: in.Port, Environment: llmserver.Visible(in),
			Arguments: server(in, m, in.Listen(), fmt.Sprint(in.Port)), Folders: folders,
		}}, nil
	}
	config, err := swapConfig(in)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("instance-%d", in.Index)
	return []llmserver.Process{{
		Name: name, Port: in.Port, Environment: llmserver.Visible(in), Folders: folders,
		Arguments: []string{"llama-swap", "-config", name + ".yaml", "-listen", fmt.Sprintf("%s:%d", in.Listen(), in.Port)},
		Config:    &llmserver.Config{Path: name + ".yaml", Content: config},
	}}, nil
}

// server returns the command of a llama-server. Options that importers read, too, have their names in llmcommand.LlamaCpp,
// which says of which version they are.
func server(in *llmserver.Instance, m *llmserver.Model, host, port string) []string {
	p := &llmcommand.LlamaCpp
	args := []string{"llama-server"}
	if llmserver.IsPath(m.Source) {
		args = append(args, p.Model[0], m.Source)
	} else {
		args = append(args, "--hf-repo", m.Source)
	}
	args = append(args, p.ServedName[0], m.Name, "--host", host, "--port", port, p.Sequences[0], fmt.Sprint(m.Sequences), "--metrics",
		p.TokenBudget[0], fmt.Sprint(in.TokenBudget), "--ubatch-size", fmt.Sprint(in.TokenBudget))

	// Sequences share the memory, as the plan assumes. Without its size, each has room for a context.
	size := cmp.Or(m.PlannedTokens, int64(m.Context*m.Sequences))
	if size > 0 {
		args = append(args, p.Context[0], fmt.Sprint(size), p.KVUnified[0])
	}
	switch {
	case formats.IsCPU(in.Device):
		if in.Threads > 0 {
			args = append(args, "--threads", fmt.Sprint(in.Threads))
		}
		args = append(args, "--device", "none")
	case len(in.Devices) > 1:
		args = append(args, "--n-gpu-layers", "all", "--split-mode", "row")
	default:
		args = append(args, "--n-gpu-layers", "all")
	}
	if in.NoPrefixCache {
		args = append(args, p.NoPrefixCache[0])
	}
	if len(m.Adapters) > 0 {
		files := document.Map(m.Adapters, func(a *llmserver.Adapter) string { return a.Path })
		args = append(args, p.Adapters[0], strings.Join(files, ","))
	}
	return args
}

// The parts of a configuration of llama-swap v250 that are written (config-schema.json).
type (
	swapFile struct {
		HealthCheckTimeout int                  `yaml:"healthCheckTimeout"` // seconds that a model may take to load
		StartPort          int                  `yaml:"startPort"`          // of the servers behind it
		Models             map[string]swapModel `yaml:"models"`
		Hooks              swapHooks            `yaml:"hooks"`
	}
	swapModel struct {
		Cmd           string `yaml:"cmd"`
		CheckEndpoint string `yaml:"checkEndpoint"`
	}
	swapHooks struct {
		OnStartup struct {
			Preload []string `yaml:"preload"`
		} `yaml:"on_startup"`
	}
)

// swapConfig returns the configuration of an instance of several models: without groups, one runs at a time.
func swapConfig(in *llmserver.Instance) (string, error) {
	// The servers behind it have ports that no other server has.
	if last := in.BackPort + len(in.Bases) - 1; last > 65535 {
		return "", usage.Errorf("--port: found port %d of instance %d, expected at most %d: llama-swap has its servers %d ports above", in.Port, in.Index, in.Port-last+65535, in.BackPort-in.Port)
	}
	file := swapFile{HealthCheckTimeout: 1200, StartPort: in.BackPort, Models: map[string]swapModel{}}
	file.Hooks.OnStartup.Preload = []string{in.InitialModel().Name}
	for k := range in.Bases {
		m := &in.Bases[k]
		var words []string
		for _, word := range server(in, m, "127.0.0.1", "${PORT}") {
			if word != "${PORT}" {
				word = llmserver.Quote(word)
			}
			words = append(words, word)
		}
		file.Models[m.Name] = swapModel{Cmd: strings.Join(words, " "), CheckEndpoint: "/health"}
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(file)
	return b.String(), err
}
