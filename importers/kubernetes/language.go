package kubernetes

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/llmcommand"
	"inferplan/formats/triton"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/planner/kind"
)

// languageReader reads the pods of servers of language models.
type languageReader struct {
	devices deviceReader
	profile *formats.Profile
	models  map[string]string // of the profile, by the name that a server has for them
	notes   []string
}

// importLanguageServers saves the plan of pods that run servers of language models.
func (o *options) importLanguageServers(r *importers.Run, c *cluster, servers, workloads []*workload) error {
	if r.Flags.Changed("repository") {
		return usage.Errorf("--repository: expected pods of Triton; here it does nothing")
	}
	l := &languageReader{}
	var err error
	if l.devices.kindLabels, err = parseKindLabels(o.nodeSelectors); err != nil {
		return err
	}
	if l.models, err = parseModels(o.models); err != nil {
		return err
	}
	for _, w := range workloads {
		if w.engine.program == nil {
			c.notes = append(c.notes, w.String()+" runs "+w.engine.name+", which is not read: it is left out, and its devices are idle in the plan")
		}
	}
	return o.documents.Import(r, func(profile *formats.Profile, cluster *formats.Cluster) (*kind.Observed, []string, error) {
		l.profile, l.devices.cluster = profile, cluster
		if err := checkKinds(l.devices.kindLabels, cluster); err != nil {
			return nil, nil, err
		}
		list, err := l.servers(servers)
		return &kind.Observed{Servers: list}, slices.Concat(c.notes, l.notes, []string{
			"pods have the devices of the cluster in the order of the files",
			"queues: what is simulated is plan serve before these servers, which chooses the server of each request and its place; a Service divides requests blindly, and holds less",
		}), err
	})
}

// parseModels reads flags NAME=MODEL.
func parseModels(list []string) (map[string]string, error) {
	models := map[string]string{}
	for _, text := range list {
		name, model, _ := strings.Cut(text, "=")
		if _, twice := models[name]; twice || name == "" || model == "" {
			return nil, usage.Errorf("--model: found %q, expected NAME=MODEL, a name that a server has and a model of the profile, each name once", text)
		}
		models[name] = model
	}
	return models, nil
}

// checkModels returns an error for a model of the flags that the profile lacks, and for a name that no server has.
func (l *languageReader) checkModels(workloads []*workload) error {
	var names []string
	for _, w := range workloads {
		settings, err := w.engine.program.Read(w.words, w.variables, llmcommand.Device{})
		if err != nil && w.count > 0 {
			return nil // the error is said with its place where the server is read
		}
		if err == nil {
			names = append(names, modelNames(settings)...)
			names = append(names, document.Map(settings.Adapters, func(a *llmcommand.Adapter) string { return a.Name })...)
		}
	}
	models := document.Map(l.profile.LLMs, func(m *formats.LLMProfile) string { return m.Model })
	for _, name := range sortedKeys(l.models) {
		if !slices.Contains(names, name) {
			return usage.Errorf("--model: found %q, expected a name that a server has: %s", name+"="+l.models[name], document.List(unique(names)))
		}
		if !slices.Contains(models, l.models[name]) {
			return usage.Errorf("--model: found %q, expected a language model of the profile: %s", name+"="+l.models[name], document.List(models))
		}
	}
	return nil
}

// unique returns the different texts of a list, sorted.
func unique(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// modelNames returns the names for the model of a server: those that it serves, and the model's own, with or without what is
// before its last slash.
func modelNames(s *llmcommand.Settings) []string {
	return slices.Concat(s.Names, []string{s.Model, path.Base(s.Model)})
}

// servers returns the servers in the pods of workloads. Pods get the devices of the cluster in the order of the files.
func (l *languageReader) servers(workloads []*workload) (list []kind.Server, err error) {
	if err := l.checkModels(workloads); err != nil {
		return nil, err
	}
	remaining := l.devices.free()
	for _, w := range workloads {
		if w.count == 0 {
			l.notes = append(l.notes, w.String()+" has no pods")
			continue
		}
		devices, err := l.devices.devicesOf(w)
		if err != nil {
			return nil, err
		}
		settings, err := w.engine.program.Read(w.words, w.variables, l.deviceOf(devices.kind))
		if wrong, ok := errors.AsType[*llmcommand.OptionError](err); ok {
			hint := wrong.Hint
			if strings.Contains(wrong.Found, "$(") {
				hint = "values of variables that a ConfigMap or a Secret has are not read: give them in the arguments"
			}
			if w.laterStarts > 0 {
				hint = strings.TrimPrefix(hint+"; "+w.placesText(), "; ")
			}
			return nil, w.argumentsValue().fail(wrong.Option+" "+wrong.Found+" of "+w.String(), wrong.Expected, hint)
		}
		if w.container.field("envFrom").exists() && (w.engine.program == &llmcommand.LlamaCpp || w.missing || slices.ContainsFunc(w.words, reference.MatchString)) {
			l.notes = append(l.notes, w.String()+": variables of envFrom are not read: if they set options of the server, give these as arguments")
		}
		for _, line := range settings.Assumed {
			l.notes = append(l.notes, w.String()+": "+line)
		}
		if settings.TensorParallel == 0 {
			settings.TensorParallel = devices.count()
		}
		server, err := l.serverOf(w, settings, devices)
		if err != nil {
			return nil, err
		}
		hosts, err := remaining.takePods(w, devices)
		if err != nil {
			return nil, err
		}
		for _, host := range hosts {
			list = append(list, copiesOn(server, host, settings.Copies)...)
		}
	}
	return list, nil
}

// deviceOf returns what the profile knows of a kind of devices.
func (l *languageReader) deviceOf(deviceKind string) llmcommand.Device {
	d := llmcommand.Device{Name: deviceKind}
	if known := document.First(l.profile.Devices, func(p *formats.ProfileDevice) bool { return p.Device == deviceKind }); known != nil {
		d.MemoryBytes = known.MemoryBytes
		d.Name += " " + known.Name
	}
	return d
}

// argumentsValue returns the arguments of the container, or its command, for messages.
func (w *workload) argumentsValue() value {
	return w.container.field("args").orOf(w.container.field("command")).orOf(w.container)
}

// count returns how many devices of the kind there are.
func (d podDevices) count() int {
	if d.gpus > 0 {
		return d.gpus
	}
	threads, _ := formats.CPUThreads(d.kind)
	return d.cpus / max(threads, 1)
}

// serverOf returns the server that a container runs, without its first device: its models are those of the profile.
func (l *languageReader) serverOf(w *workload, s *llmcommand.Settings, d podDevices) (*kind.Server, error) {
	needed := s.TensorParallel * s.Copies
	if s.TensorParallel > d.count() || s.Copies > d.count() || needed > d.count() { // the product of great numbers is no count
		return nil, w.argumentsValue().fail(fmt.Sprintf("%d copies on %d devices each of %s", s.Copies, s.TensorParallel, w), fmt.Sprintf("at most the %d devices of a pod", d.count()), "resources.limits say which devices a pod has")
	}
	if needed < d.count() {
		l.notes = append(l.notes, fmt.Sprintf("%s uses %d of the %d devices of a pod: the others are idle in the plan", w, needed, d.count()))
	}
	model, err := l.modelOf(w, s)
	if err != nil {
		return nil, err
	}
	server := &kind.Server{
		QueueInstance: formats.QueueInstance{Device: d.kind, TensorParallel: s.TensorParallel, Model: model, Models: []string{model}, Sequences: []int{s.Sequences}, TokenBudget: s.TokenBudget, NoPrefixCache: s.NoPrefixCache},
		Label:         w.String(), ContextTokens: s.ContextTokens, KVTokens: s.KVTokens, KVBytes: s.KVBytes, MemoryShare: s.MemoryShare,
		OptionError: w.argumentsValue().fail,
	}
	if s.Priority {
		server.Scheduling = formats.SchedulePriority
	}

	// Adapters are models of their own, which the server runs beside its base.
	for _, a := range s.Adapters {
		name := l.knownModel(a.Name)
		switch {
		case name == "":
			l.notes = append(l.notes, fmt.Sprintf("%s: the adapter %s is no model of the profile: it is left out", w, a.Name))
		case !slices.Contains(server.Models, name):
			server.Models, server.Sequences = append(server.Models, name), append(server.Sequences, s.Sequences)
		}
	}
	if len(server.Models) > 1 {
		l.notes = append(l.notes, w.String()+": adapters and their base take turns in the plan, and run side by side on the server, which does a little more")
	}
	return server, nil
}

// knownModel returns the language model of the profile that a server has a name for, or "" if there is none.
func (l *languageReader) knownModel(name string) string {
	if model, ok := l.models[name]; ok {
		name = model
	}
	if slices.ContainsFunc(l.profile.LLMs, func(m formats.LLMProfile) bool { return m.Model == name }) {
		return name
	}
	return ""
}

// modelOf returns the model of the profile that a server loads, by one of modelNames.
func (l *languageReader) modelOf(w *workload, s *llmcommand.Settings) (string, error) {
	for _, name := range modelNames(s) {
		if model := l.knownModel(name); model != "" {
			return model, nil
		}
	}
	known := document.Map(l.profile.LLMs, func(m *formats.LLMProfile) string { return m.Model })
	expected := "a language model of the profile: " + document.List(known)
	if len(known) == 0 {
		expected = "a profile with language models (llms)"
	}
	return "", w.argumentsValue().fail("the model "+strconv.Quote(s.Names[0])+" of "+w.String(), expected, fmt.Sprintf("name the model of the profile: --model %s=MODEL", s.Names[0]))
}

// copiesOn returns the copies of a server on the devices of a pod, one after the other.
func copiesOn(server *kind.Server, host triton.Host, copies int) (list []kind.Server) {
	devices := host.GPUs
	if formats.IsCPU(server.Device) {
		devices = host.CPUs
	}
	for i := range copies {
		placed := *server
		placed.FirstDevice = devices[i*server.TensorParallel].Number
		list = append(list, placed)
	}
	return list
}
