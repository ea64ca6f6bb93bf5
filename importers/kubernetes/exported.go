package kubernetes

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// served is a plan that plan serve executes, with the devices that its workers have.
type served struct {
	server        *workload
	plan          *formats.Plan
	tables        *policy.Tables
	copyDevices   map[string]int // devices of a copy on workers, by kind
	workerDevices map[string]int // devices that all workers have
	firstDevices  map[string]int // those of the first copy
	notes         []string
}

// newServed returns the plan of the only server among workloads.
func newServed(c *cluster, servers, workers []*workload) (*served, error) {
	if len(servers) > 1 {
		return nil, servers[1].fail(fmt.Sprintf("%s and %s, which both serve a plan", servers[0], servers[1]), "one plan", "select one: kubectl get -l app.kubernetes.io/instance=NAME")
	}
	s := &served{server: servers[0], copyDevices: map[string]int{}, workerDevices: map[string]int{}, firstDevices: map[string]int{}}
	if s.server.count == 0 {
		return nil, s.server.replicas.fail("0", "a server that runs", "")
	}
	text, err := c.planOf(s.server)
	if err != nil {
		return nil, err
	}
	if s.plan, err = formats.DecodePlan([]byte(text.text), text.name); err != nil {
		return nil, err
	}
	if len(optionsOf(s.server.words, "--join-listen")) > 0 { // else all devices are in the server's pod
		if s.tables, err = policies.Compile(s.plan); err != nil {
			return nil, usage.Errorf("%s: %w", text.name, err)
		}
		if err := s.countDevices(workers); err != nil {
			return nil, err
		}
	}
	s.setCopies()
	return s, nil
}

// planOf returns the text of the plan that a server reads: from the ConfigMap that is mounted where its first argument
// says, or else the only plan among the files.
func (c *cluster) planOf(server *workload) (*plan, error) {
	file := ""
	if i := indexOf(server.words, []string{"plan", "serve"}); i+2 < len(server.words) {
		file = server.words[i+2]
	}
	texts := slices.Clone(c.plans)
	name, key := configMapOf(server, file)
	if config := c.find("", "ConfigMap", server.namespace, name); config != nil && name != "" {
		for label, text := range config.field("data").labels() {
			if label == key {
				texts = append(texts, plan{config.file + ": " + config.String() + ": data." + key, text})
			}
		}
		if config.err != nil {
			return nil, config.err
		}
	}
	if server.err != nil {
		return nil, server.err
	}
	if len(texts) == 1 {
		return &texts[0], nil
	}
	if len(texts) > 1 {
		names := document.Map(texts, func(p *plan) string { return p.name })
		return nil, server.fail("the plan of "+server.String()+" in "+document.List(names), "one plan", "give either its file or the ConfigMap")
	}
	hint := "give the file of the plan, too, which is in the image"
	if name != "" {
		hint = "give the ConfigMap " + name + ", too, such as by kubectl get sts,cm -o yaml, or the file of the plan"
	}
	return nil, server.fail("no plan of "+server.String(), "its document", hint)
}

// configMapOf returns the ConfigMap that a container of a workload has at the path of a file, and its key there, or ""
// if there is none.
func configMapOf(w *workload, file string) (name, key string) {
	for _, mount := range w.container.field("volumeMounts").items() {
		if at := mount.field("mountPath").text(); at == "" || path.Clean(at) != path.Dir(file) {
			continue
		}
		for _, volume := range w.pods.field("volumes").items() {
			if volume.field("name").text() == mount.field("name").text() {
				name = cmp.Or(name, volume.field("configMap.name").text())
			}
		}
	}
	return name, path.Base(file)
}

// countDevices counts the devices that a copy of the plan has on workers, and those that the server's workers have.
func (s *served) countDevices(workers []*workload) error {
	for i := range s.tables.Devices {
		if d := &s.tables.Devices[i]; d.Instance < 0 {
			s.copyDevices[s.tables.Kinds[d.Kind]]++
		}
	}
	for _, w := range workers {
		join, device, count := optionsOf(w.words, "--join"), optionsOf(w.words, "--device"), optionsOf(w.words, "--count")
		if len(join) != 1 || !strings.HasPrefix(join[0], s.server.name+"-") || w.namespace != s.server.namespace {
			s.notes = append(s.notes, fmt.Sprintf("%s does not join %s: it is left out", w, s.server))
			continue
		}
		perPod := 1
		var err error
		if len(count) > 0 {
			perPod, err = strconv.Atoi(count[0])
		}
		if len(device) != 1 || len(count) > 1 || err != nil || perPod < 1 || perPod > maxPods {
			return w.container.fail("plan worker "+strings.Join(slices.Concat(device, count), " "), "--device KIND and --count N", "")
		}
		if s.copyDevices[device[0]] == 0 {
			s.notes = append(s.notes, fmt.Sprintf("%s: the plan has no devices of kind %s: its pods have nothing to do", w, device[0]))
		}
		s.workerDevices[device[0]] += w.count * perPod
	}
	for _, kind := range sortedKeys(s.copyDevices) {
		if _, ok := s.workerDevices[kind]; !ok {
			return s.server.fail("no workers with devices of kind "+kind+" that join "+s.server.String(), fmt.Sprintf("%d for each copy of the plan", s.copyDevices[kind]), "give the manifests of the workers, too")
		}
	}
	return nil
}

// setCopies notes how the devices of workers are those of copies of the plan: copy i has those behind the devices of the
// copies before it.
func (s *served) setCopies() {
	if s.server.count > 1 {
		s.notes = append(s.notes, fmt.Sprintf("%d copies of the plan run, each with its own devices: the plan is that of one", s.server.count))
	}
	for _, kind := range sortedKeys(s.copyDevices) {
		n := s.copyDevices[kind]
		for i := range s.server.count {
			has := min(max(s.workerDevices[kind]-i*n, 0), n)
			if i == 0 {
				s.firstDevices[kind] = has
			}
			if has < n {
				s.notes = append(s.notes, fmt.Sprintf("replicas were changed: copy %d of the plan has %d of its %d devices of kind %s", i, has, n, kind))
			}
		}
		if extra := s.workerDevices[kind] - s.server.count*n; extra > 0 {
			s.notes = append(s.notes, fmt.Sprintf("replicas were changed: workers have %d devices of kind %s more than the plan, which do nothing", extra, kind))
		}
	}
}

// isWhole reports whether the first copy has all devices of the plan.
func (s *served) isWhole() bool {
	for kind, n := range s.copyDevices {
		if s.firstDevices[kind] < n {
			return false
		}
	}
	return true
}

// remaining returns the deployment of the plan on the devices that the first copy has: the first of each kind. Stages
// and pipelines without any are left out.
func (s *served) remaining() ([]formats.Deployed, error) {
	counts, isThere := map[string]int{}, make([]bool, len(s.tables.Devices))
	for i := range s.tables.Devices {
		kind := s.tables.Kinds[s.tables.Devices[i].Kind]
		isThere[i] = counts[kind] < s.firstDevices[kind]
		counts[kind]++
	}
	var list []formats.Deployed
	next := int32(0) // stage of the tables, which have the order of the plan
	for i := range s.plan.Deployment {
		d := &s.plan.Deployment[i]
		observed := formats.Deployed{Model: d.Model, Class: d.Class, Bucket: d.Bucket}
		for k := range d.Pipelines {
			pipeline, isServed := formats.Pipeline{Batch: d.Pipelines[k].Batch}, true
			for n := range d.Pipelines[k].Stages {
				if int(next) >= len(s.tables.Stages) {
					return nil, &document.Error{File: s.server.file, Found: "fewer devices than those of the plan, of kind " + s.plan.Kind, Expected: "all of them", Hint: "set the replicas as plan export writes them"}
				}
				stage := s.stageOn(&d.Pipelines[k].Stages[n], next, isThere)
				isServed = isServed && stage.Replicas > 0
				pipeline.Stages = append(pipeline.Stages, stage)
				next++
			}
			if isServed {
				observed.Pipelines = append(observed.Pipelines, pipeline)
			}
		}
		list = append(list, observed)
	}
	return list, nil
}

// stageOn returns the places of a stage, which is number in the tables, on the devices that are there.
func (s *served) stageOn(stage *formats.Stage, number int32, isThere []bool) formats.Stage {
	observed := formats.Stage{Blocks: stage.Blocks, Device: stage.Device, Share: stage.Share}
	for _, d := range s.tables.DevicesOf(number) {
		if !isThere[d] {
			continue
		}
		gpu := int(s.tables.Devices[d].GPU)
		observed.Replicas++
		if last := len(observed.Placement) - 1; last >= 0 && observed.Placement[last].FirstDevice == gpu {
			observed.Placement[last].PerDevice++
			observed.Placement[last].Replicas++
			continue
		}
		observed.Placement = append(observed.Placement, formats.Placement{FirstDevice: gpu, PerDevice: 1, Replicas: 1})
	}
	return observed
}
