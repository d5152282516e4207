package main

import (
	"context"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/dns/dnsmessage"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	slicelisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// names resolves the services of the cluster. It forwards no queries, because the node has no other network.
type names struct {
	domain   string
	services corelisters.ServiceLister
	slices   slicelisters.EndpointSliceLister
}

func newDNSCommand() *cobra.Command {
	var kubeconfig, listen, domain string
	command := &cobra.Command{
		Use:          "dns",
		Short:        "Resolves NAME.NAMESPACE.svc and POD.NAME.NAMESPACE.svc over UDP",
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			factory := informers.NewSharedInformerFactory(client, 0)
			n := names{domain: "." + domain + ".", services: factory.Core().V1().Services().Lister(), slices: factory.Discovery().V1().EndpointSlices().Lister()}
			ctx := context.Background()
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			socket, err := net.ListenPacket("udp", listen)
			if err != nil {
				return err
			}
			buffer := make([]byte, 4096)
			for {
				length, from, err := socket.ReadFrom(buffer)
				if err != nil {
					return err
				}
				if answer := n.answer(buffer[:length]); answer != nil {
					_, _ = socket.WriteTo(answer, from)
				}
			}
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file for the API server")
	command.Flags().StringVar(&listen, "listen", "127.0.0.1:53", "address and port")
	command.Flags().StringVar(&domain, "domain", "cluster.local", "domain of the cluster")
	return command
}

func (n names) answer(query []byte) []byte {
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil || len(message.Questions) != 1 {
		return nil
	}
	question := message.Questions[0]
	addresses, known := n.look(strings.ToLower(question.Name.String()))
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: message.ID, Response: true, Authoritative: true, RecursionDesired: message.RecursionDesired, RecursionAvailable: true},
		Questions: message.Questions,
	}
	if !known {
		answer.RCode = dnsmessage.RCodeNameError
	}
	for _, address := range addresses {
		ip := net.ParseIP(address).To4()
		if ip == nil || question.Type != dnsmessage.TypeA {
			continue
		}
		header := dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 5}
		answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: [4]byte(ip)}})
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// look returns the addresses of a name, and whether the name exists.
func (n names) look(name string) ([]string, bool) {
	rest, ours := strings.CutSuffix(name, ".svc"+n.domain)
	parts := strings.Split(rest, ".")
	if !ours || len(parts) < 2 || len(parts) > 3 {
		return nil, false
	}
	host, parts := "", parts
	if len(parts) == 3 {
		host, parts = parts[0], parts[1:]
	}
	service, err := n.services.Services(parts[1]).Get(parts[0])
	if err != nil {
		return nil, false
	}
	if host == "" && service.Spec.ClusterIP != "None" {
		return []string{service.Spec.ClusterIP}, true
	}
	slices, err := n.slices.EndpointSlices(parts[1]).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: parts[0]}))
	if err != nil {
		return nil, false
	}
	var addresses []string
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready || service.Spec.PublishNotReadyAddresses
			if ready && (host == "" || endpoint.Hostname != nil && *endpoint.Hostname == host) {
				addresses = append(addresses, endpoint.Addresses...)
			}
		}
	}
	return addresses, true
}
