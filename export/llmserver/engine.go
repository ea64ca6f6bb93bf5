package llmserver

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/export"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// Engine is a server of language models.
type Engine struct {
	Name, Summary, Description, Example string
	// Image is the default of --image, for compose. Its programs find models of Hugging Face in the folder Cache.
	Image, Cache string
	// Flags defines flags of this engine beside those that all have. It may be nil.
	Flags func(f *pflag.FlagSet)
	// Processes returns the processes of an instance in the order in which they start, or an error if the engine
	// cannot run it. All but the last are to sleep once they are ready.
	Processes func(in *Instance) ([]Process, error)
	// Sleep is the path that a POST request puts a server to sleep with, if it runs one of several models.
	Sleep string
	// Lost returns lines about what of an instance the engine cannot do.
	Lost func(in *Instance) []string
}

// Process is a server to start.
type Process struct {
	Name        string
	Model       string // the one that it has; empty if it changes models by itself
	Port        int
	Environment []string // NAME=VALUE
	Arguments   []string // the first is the program
	Folders     []string // folders and files of the machine that it reads
	Config      *Config  // a file that it reads, or nil
}

// Config is a file of a process. Its path is relative to the folder of the node.
type Config struct{ Path, Content string }

// NewTarget returns the target of plan export for an engine. Flags are those of one command.
func NewTarget(e Engine) *export.Target {
	options, image := &Options{}, ""
	return &export.Target{
		Name: e.Name, Summary: e.Summary, Description: e.Description, Example: e.Example,
		DefineFlags: func(f *pflag.FlagSet) {
			options.DefineFlags(f)
			f.StringVar(&image, "image", e.Image, "image of the servers in the compose files")
			if e.Flags != nil {
				e.Flags(f)
			}
		},
		AddFiles: func(_ context.Context, source *export.Source, folder *export.Folder) error {
			return e.addFiles(source, folder, options, image)
		},
	}
}

// addFiles adds the files of all nodes and of the front end.
func (e *Engine) addFiles(source *export.Source, folder *export.Folder, options *Options, image string) error {
	layout, err := NewLayout(source.Plan, options)
	if err != nil {
		return err
	}
	folder.Assumed = append(layout.Assumed, fmt.Sprintf("The compose files run the image %s. `--image` names another one, or its version.", image))

	// The front end reaches the servers of all instances, and an agent those of one.
	var servers, adapters []string
	starts := map[*Node][][]Process{}
	for i := range layout.Instances {
		in := &layout.Instances[i]
		processes, err := e.Processes(in)
		if err != nil {
			return err
		}
		starts[in.Node] = append(starts[in.Node], processes)
		var local []string
		for k := range processes {
			s := &processes[k]
			servers, local = append(servers, serverOf(in, s, in.Node.Address)), append(local, "--server "+Quote(serverOf(in, s, loopback)))
			if s.Config != nil {
				folder.AddText(path.Join("nodes", in.Node.Name, s.Config.Path), s.Config.Content)
			}
		}
		// An agent expects an adapter wherever its base is, so that each instance has one of its own.
		folder.AddScript(path.Join("nodes", in.Node.Name, fmt.Sprintf("agent-%d.sh", i)), agentScript(in, slices.Concat(local, adapterFlags(in))))
		adapters = appendNew(adapters, adapterFlags(in)...)
		folder.Lost = appendNew(folder.Lost, e.Lost(in)...)
	}
	for n := range layout.Nodes {
		node := &layout.Nodes[n]
		compose, err := e.compose(node, starts[node], image)
		if err != nil {
			return err
		}
		folder.AddText(path.Join("nodes", node.Name, "compose.yaml"), compose)
		folder.AddScript(path.Join("nodes", node.Name, "start.sh"), e.startScript(node, starts[node]))
	}
	folder.AddCopy("plan.json", source.Path)
	folder.AddText(serversFile, serversText(servers))
	folder.AddScript("serve.sh", serveScript(adapters))
	e.describe(layout, folder)
	return nil
}

// serverOf returns N=URL or N/MODEL=URL for a process of an instance at an address, as plan serve takes it.
func serverOf(in *Instance, s *Process, address string) string {
	key := fmt.Sprint(in.Index)
	if len(in.Bases) > 1 && s.Model != "" {
		key += "/" + s.Model
	}
	return fmt.Sprintf("%s=http://%s:%d", key, address, s.Port)
}

// adapterFlags returns --adapter for every adapter of an instance.
func adapterFlags(in *Instance) []string {
	var flags []string
	for _, m := range in.Bases {
		for _, a := range m.Adapters {
			flags = append(flags, "--adapter "+Quote(a.Name+"="+m.Name))
		}
	}
	return flags
}

// appendNew appends those lines that the list does not have.
func appendNew(list []string, lines ...string) []string {
	for _, line := range lines {
		if !slices.Contains(list, line) {
			list = append(list, line)
		}
	}
	return list
}

// Visible returns the variable that shows a process of CUDA the devices of an instance alone.
func Visible(in *Instance) []string {
	if len(in.Devices) == 0 {
		return nil
	}
	return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(document.Map(in.Devices, func(d *int) string { return fmt.Sprint(*d) }), ",")}
}

// RefuseCPU returns an error if an instance is on CPUs.
func RefuseCPU(in *Instance, engine string) error {
	if formats.IsCPU(in.Device) {
		return usage.Errorf("queue.instances[%d].device: found %q, expected a GPU for %s\n  hint: plan export llamacpp writes servers for CPUs", in.Index, in.Device, engine)
	}
	return nil
}

// SleepingProcesses returns a process for each model of an instance, the one that it begins with last, so that the
// others sleep when it takes the memory.
func SleepingProcesses(in *Instance, process func(m *Model) Process) []Process {
	initial := in.InitialModel()
	var list []Process
	for k := range in.Bases {
		if m := &in.Bases[k]; m != initial {
			list = append(list, process(m))
		}
	}
	return append(list, process(initial))
}

// ProcessName returns the name of a process of an instance: with its model if the instance has several.
func ProcessName(in *Instance, m *Model) string {
	if len(in.Bases) == 1 {
		return fmt.Sprintf("instance-%d", in.Index)
	}
	return fmt.Sprintf("instance-%d-%s", in.Index, Slug(m.Name))
}

// Folders returns the files and folders of the machine that a model and its adapters are read from.
func Folders(m *Model) []string {
	var list []string
	if IsPath(m.Source) {
		list = append(list, m.Source)
	}
	for _, a := range m.Adapters {
		list = appendNew(list, a.Path)
	}
	return list
}

// CommonLost returns lines about what of an instance only plan serve can do, and about swapping, which no engine has.
func CommonLost(in *Instance) []string {
	lines := []string{
		"The order of the queues, the limits of classes and the changes of models are the work of `plan serve`. Requests that reach a server past it run in its own order.",
		"The servers ask for no key. Close their ports to others.",
	}
	if in.Preemption == formats.PreemptBySwap {
		lines = append(lines, fmt.Sprintf("Instance %d was planned to swap KV to the host's memory when it runs out. The server computes it again.", in.Index))
	}
	return lines
}
