package llmserver

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// The parts of a compose file that are written (compose-spec).
type (
	composeFile struct {
		Name     string                     `yaml:"name"`
		Services map[string]*composeService `yaml:"services"`
	}
	composeService struct {
		Image       string                       `yaml:"image"`
		Entrypoint  []string                     `yaml:"entrypoint,omitempty"`
		WorkingDir  string                       `yaml:"working_dir,omitempty"`
		Environment []string                     `yaml:"environment,omitempty"`
		NetworkMode string                       `yaml:"network_mode"`
		IPC         string                       `yaml:"ipc,omitempty"`
		Volumes     []string                     `yaml:"volumes,omitempty"`
		Restart     string                       `yaml:"restart,omitempty"`
		Healthcheck *composeHealth               `yaml:"healthcheck,omitempty"`
		DependsOn   map[string]composeDependency `yaml:"depends_on,omitempty"`
		Deploy      *composeDeploy               `yaml:"deploy,omitempty"`
	}
	composeHealth struct {
		Test        []string `yaml:"test"`
		Interval    string   `yaml:"interval"`
		StartPeriod string   `yaml:"start_period"`
		Retries     int      `yaml:"retries"`
	}
	composeDependency struct {
		Condition string `yaml:"condition"`
	}
	composeDeploy struct {
		Resources struct {
			Reservations struct {
				Devices []composeDevice `yaml:"devices"`
			} `yaml:"reservations"`
		} `yaml:"resources"`
	}
	composeDevice struct {
		Driver       string   `yaml:"driver"`
		DeviceIDs    []string `yaml:"device_ids"`
		Capabilities []string `yaml:"capabilities"`
	}
)

const visibleDevices = "CUDA_VISIBLE_DEVICES="

// compose returns the compose file of a node. A server that is to sleep has a service beside it that puts it to sleep
// once it answers, on which the next server of the instance waits.
func (e *Engine) compose(node *Node, starts [][]Process, image string) (string, error) {
	file := composeFile{Name: node.Name, Services: map[string]*composeService{}}
	owners := map[string]string{} // the process by the name of a service
	add := func(name string, s *Process, service *composeService) error {
		owner := fmt.Sprintf("model %s on port %d", s.Model, s.Port)
		if other, taken := owners[name]; taken {
			return usage.Errorf("queue.models: found %s and %s, which both make the service %s, expected names that differ in letters and digits", other, owner, name)
		}
		owners[name], file.Services[name] = owner, service
		return nil
	}
	for _, processes := range starts {
		before := ""
		for i := range processes {
			s := &processes[i]
			service := e.newService(s, image)
			if len(processes) == 1 {
				// One of several would come back awake, beside the one that has the memory.
				service.Restart = "unless-stopped"
			}
			if before != "" {
				service.DependsOn = map[string]composeDependency{before: {"service_completed_successfully"}}
			}
			if err := add(s.Name, s, service); err != nil {
				return "", err
			}
			if i < len(processes)-1 {
				before = s.Name + "-sleep"
				if err := add(before, s, &composeService{
					Image: service.Image, NetworkMode: "host",
					Entrypoint: e.sleepCommand(s),
					DependsOn:  map[string]composeDependency{s.Name: {"service_healthy"}},
				}); err != nil {
					return "", err
				}
			}
		}
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(file); err != nil {
		return "", err
	}
	return b.String(), nil
}

// newService returns the service of a process. Its devices are those that CUDA_VISIBLE_DEVICES names: inside the
// container they are counted from 0.
func (e *Engine) newService(s *Process, image string) *composeService {
	// A dollar sign begins a variable of compose.
	escape := strings.NewReplacer("$", "$$").Replace
	service := &composeService{
		Image: escape(image), NetworkMode: "host", IPC: "host",
		Healthcheck: &composeHealth{
			Test:     []string{"CMD", "curl", "-fsS", fmt.Sprintf("http://127.0.0.1:%d/health", s.Port)},
			Interval: "5s", StartPeriod: "20m", Retries: 3,
		},
	}
	for _, variable := range s.Environment {
		ids, isDevices := strings.CutPrefix(variable, visibleDevices)
		if !isDevices {
			service.Environment = append(service.Environment, variable)
			continue
		}
		service.Deploy = &composeDeploy{}
		service.Deploy.Resources.Reservations.Devices = []composeDevice{{"nvidia", strings.Split(ids, ","), []string{"gpu"}}}
	}
	service.Entrypoint = document.Map(s.Arguments, func(word *string) string { return escape(*word) })
	for _, folder := range s.Folders {
		service.Volumes = append(service.Volumes, escape(folder+":"+folder+":ro"))
	}
	if s.Config != nil {
		service.Volumes = append(service.Volumes, "./"+s.Config.Path+":/"+s.Config.Path+":ro")
		service.WorkingDir = "/"
	}
	service.Volumes = append(service.Volumes, "${HF_HOME:-${HOME}/.cache/huggingface}:"+e.Cache)
	return service
}
