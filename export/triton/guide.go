package triton

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/export"
	"inferplan/export/llmserver"
	"inferplan/formats"
	"inferplan/formats/document"
)

// image is the container image of the server that the README names.
const image = "nvcr.io/nvidia/tritonserver:24.12-py3"

// noteDivided notes a variant whose parts are not all on one host, once, with the hosts of each part.
func (x *exporter) noteDivided(v *variant) {
	var parts []string
	for k := range v.parts {
		var hosts []string
		for i := range x.hosts {
			if len(x.instanceGroups(v, k, &x.hosts[i])) > 0 {
				hosts = append(hosts, x.hosts[i].Name)
			}
		}
		parts = append(parts, fmt.Sprintf("%s (on %s)", v.parts[k].name, strings.Join(hosts, ", ")))
	}
	line := fmt.Sprintf("The pipeline %s crosses hosts, which a server cannot: a client sends %s requests/s to the first part, and the outputs of each to the next, by position: %s.",
		v.name, document.FormatFloat(v.rate()), strings.Join(parts, ", then "))
	if !slices.Contains(x.divided, line) {
		x.divided = append(x.divided, line)
	}
}

// guide says in the README what to run, and what the repositories assume and lack.
func (x *exporter) guide(folder *export.Folder) {
	x.addServers(folder)
	x.addRequests(folder)
	folder.Assumed = append(folder.Assumed,
		"A server numbers its GPUs as the cluster lists its pools: first the devices of the first pool on the host. CUDA_VISIBLE_DEVICES orders them otherwise.",
		"A queue forms batches of the planned size, and waits for them only as long as the SLO leaves. A request is refused once its SLO is out of reach.")
	if x.hasShares() {
		folder.Assumed = append(folder.Assumed, "An instance on a share 1/v of a GPU is one of v instances there. They run at once under NVIDIA's MPS (nvidia-cuda-mps-control -d), and were measured so.")
	}
	folder.Lost = append(folder.Lost, x.divided...)
	if slices.ContainsFunc(x.variants, func(v *variant) bool { return v.deployed.Bucket != nil }) {
		folder.Lost = append(folder.Lost, "Requests of any length: each length bucket is a model here (NAME@LENGTH), and a client pads its requests and asks for the bucket.")
	}
	switch {
	case x.isPool:
		folder.Lost = append(folder.Lost, "The plan's policy reserves all stages of a pipeline when a batch starts. Triton queues at each stage by itself, so measure what it keeps: plan load sends the planned rates to one host.")
	case formats.GearOf(x.plan) != nil:
		folder.Lost = append(folder.Lost, "The cascade: Triton answers with the model that a request names. Which model answers, and the gears, need a model of your own (BLS in Python), with the thresholds of the plan's gears.")
	default:
		folder.Lost = append(folder.Lost, "The graph of the application: its modules are models here, and who asks for them in which order is left to the client, an ensemble or BLS. Each queue knows the SLO of the whole alone.")
		if flow := formats.FlowOf(x.plan); flow.Workflow() {
			folder.Lost = append(folder.Lost, "Loads at run time: the repositories hold what the plan has on each device at the start.")
			for _, m := range flow.Modules {
				if len(m.Resident) == 0 {
					folder.Lost = append(folder.Lost, "The model "+m.Model+", which no device holds at the start: no repository has it.")
				}
			}
		}
	}
}

// addServers adds how to start the server of each host.
func (x *exporter) addServers(folder *export.Folder) {
	options := "--model-repository=/models"
	if x.takesTurns {
		options += " --rate-limit=execution_count"
	}
	for i := range x.hosts {
		h := &x.hosts[i]
		if !slices.ContainsFunc(folder.Paths(), func(path string) bool { return strings.HasPrefix(path, h.Name+"/") }) {
			continue
		}
		var devices []string
		for n, d := range h.GPUs {
			devices = append(devices, fmt.Sprintf("GPU %d is %s %d", n, x.plan.Pools[d.Pool].Device, d.Number))
		}
		if len(h.CPUs) > 0 {
			devices = append(devices, fmt.Sprintf("%d sets of CPU threads", len(h.CPUs)))
		}
		gpus := "--gpus all "
		if len(h.GPUs) == 0 {
			gpus = ""
		}
		folder.Steps = append(folder.Steps, export.Step{
			Title: "The server of " + h.Name, Text: strings.Join(devices, ", ") + ".",
			Commands: fmt.Sprintf("docker run --rm %s--shm-size=1g -p 8000:8000 -p 8001:8001 -p 8002:8002 -v \"$PWD\"%s %s \\\n  tritonserver %s", gpus, llmserver.Quote("/"+h.Name+":/models"), image, options),
		})
	}
}

// addRequests adds the rates at which the plan sends requests to each model of each host.
func (x *exporter) addRequests(folder *export.Folder) {
	var b strings.Builder
	b.WriteString("Triton does not divide requests among models or hosts. The plan does, at these rates:\n\n| host | model | requests/s |\n|---|---|---|\n")
	for _, r := range x.requests {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.host, r.model, document.FormatFloat(r.rps))
	}
	folder.Steps = append(folder.Steps, export.Step{Title: "Where requests go", Text: strings.TrimRight(b.String(), "\n")})
}

// hasShares reports whether some stage has a share of a device.
func (x *exporter) hasShares() bool {
	for s := range x.plan.Stages() {
		if s.Share > 1 {
			return true
		}
	}
	return false
}
