package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	netlisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// policies converts NetworkPolicies to nftables rules for forwarded packets. Packets from the node to its pods, such as probes, are not
// forwarded, so policies do not apply to them.
type policies struct {
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	policies   netlisters.NetworkPolicyLister
}

func newPolicyCommand() *cobra.Command {
	var kubeconfig string
	command := &cobra.Command{
		Use:          "policy",
		Short:        "Enforces NetworkPolicies (IPv4, TCP, UDP and SCTP) by nftables",
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
			p := policies{factory.Core().V1().Pods().Lister(), factory.Core().V1().Namespaces().Lister(), factory.Networking().V1().NetworkPolicies().Lister()}
			changes := make(chan struct{}, 1)
			change := func() {
				select {
				case changes <- struct{}{}:
				default:
				}
			}
			handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { change() }, UpdateFunc: func(any, any) { change() }, DeleteFunc: func(any) { change() }}
			for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().Pods().Informer(), factory.Core().V1().Namespaces().Informer(), factory.Networking().V1().NetworkPolicies().Informer()} {
				if _, err := informer.AddEventHandler(handler); err != nil {
					return err
				}
			}
			ctx := context.Background()
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			before := ""
			for range changes {
				time.Sleep(100 * time.Millisecond)
				rules, err := p.rules()
				if err == nil && rules != before {
					nft := exec.Command("nft", "-f", "-")
					nft.Stdin, nft.Stderr = bytes.NewBufferString(rules), os.Stderr
					if err = nft.Run(); err == nil {
						before = rules
					}
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
			return nil
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file for the API server")
	return command
}

func (p policies) rules() (string, error) {
	all, err := p.policies.List(labels.Everything())
	if err != nil {
		return "", err
	}
	pods, err := p.pods.List(labels.Everything())
	if err != nil {
		return "", err
	}
	var jumps, chains strings.Builder
	for _, pod := range pods {
		if !hasAddress(pod) {
			continue
		}
		for _, direction := range []struct {
			kind             networking.PolicyType
			chain, own, peer string
		}{{networking.PolicyTypeIngress, "in", "daddr", "saddr"}, {networking.PolicyTypeEgress, "out", "saddr", "daddr"}} {
			var lines []string
			isolated := false
			for _, policy := range all {
				selector, err := meta.LabelSelectorAsSelector(&policy.Spec.PodSelector)
				if err != nil || policy.Namespace != pod.Namespace || !selector.Matches(labels.Set(pod.Labels)) || !has(policy, direction.kind) {
					continue
				}
				isolated = true
				if direction.kind == networking.PolicyTypeIngress {
					for _, rule := range policy.Spec.Ingress {
						lines = append(lines, p.allow(policy.Namespace, rule.From, rule.Ports, direction.peer, pods, pod)...)
					}
				} else {
					for _, rule := range policy.Spec.Egress {
						lines = append(lines, p.allow(policy.Namespace, rule.To, rule.Ports, direction.peer, pods, nil)...)
					}
				}
			}
			if !isolated {
				continue
			}
			chain := direction.chain + strings.ReplaceAll(pod.Status.PodIP, ".", "_")
			fmt.Fprintf(&jumps, "    ip %s %s jump %s\n", direction.own, pod.Status.PodIP, chain)
			fmt.Fprintf(&chains, "  chain %s {\n", chain)
			for _, line := range lines {
				fmt.Fprintf(&chains, "    %s return\n", line)
			}
			chains.WriteString("    counter drop\n  }\n")
		}
	}
	return fmt.Sprintf("table inet netpolicy\ndelete table inet netpolicy\ntable inet netpolicy {\n%s  chain forward {\n    type filter hook forward priority 0; policy accept;\n"+
		"    ct state established,related accept\n%s  }\n}\n", chains.String(), jumps.String()), nil
}

// allow returns nftables matches for peers and ports. named is the pod in which named ports are looked up.
func (p policies) allow(namespace string, peers []networking.NetworkPolicyPeer, ports []networking.NetworkPolicyPort, side string, pods []*core.Pod, named *core.Pod) []string {
	who := []string{""}
	if len(peers) > 0 {
		who = nil
	}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			match := fmt.Sprintf("ip %s %s ", side, peer.IPBlock.CIDR)
			for _, except := range peer.IPBlock.Except {
				match += fmt.Sprintf("ip %s != %s ", side, except)
			}
			who = append(who, match)
			continue
		}
		var addresses []string
		for _, pod := range pods {
			if hasAddress(pod) && p.selects(namespace, peer, pod) {
				addresses = append(addresses, pod.Status.PodIP)
			}
		}
		if len(addresses) > 0 {
			who = append(who, fmt.Sprintf("ip %s { %s } ", side, strings.Join(addresses, ", ")))
		}
	}
	what := []string{""}
	if len(ports) > 0 {
		what = nil
	}
	for _, port := range ports {
		protocol := "tcp"
		if port.Protocol != nil {
			protocol = strings.ToLower(string(*port.Protocol))
		}
		switch {
		case port.Port == nil:
			what = append(what, "meta l4proto "+protocol)
		case port.Port.Type == intstr.String && named != nil:
			for _, container := range named.Spec.Containers {
				for _, its := range container.Ports {
					if its.Name == port.Port.StrVal {
						what = append(what, fmt.Sprintf("%s dport %d", protocol, its.ContainerPort))
					}
				}
			}
		case port.EndPort != nil:
			what = append(what, fmt.Sprintf("%s dport %d-%d", protocol, port.Port.IntVal, *port.EndPort))
		case port.Port.Type == intstr.Int:
			what = append(what, fmt.Sprintf("%s dport %d", protocol, port.Port.IntVal))
		}
	}
	var matches []string
	for _, one := range who {
		for _, other := range what {
			matches = append(matches, one+other)
		}
	}
	return matches
}

func (p policies) selects(namespace string, peer networking.NetworkPolicyPeer, pod *core.Pod) bool {
	if peer.NamespaceSelector == nil {
		if pod.Namespace != namespace {
			return false
		}
	} else {
		selector, err := meta.LabelSelectorAsSelector(peer.NamespaceSelector)
		space, missing := p.namespaces.Get(pod.Namespace)
		if err != nil || missing != nil || !selector.Matches(labels.Set(space.Labels)) {
			return false
		}
	}
	if peer.PodSelector == nil {
		return true
	}
	selector, err := meta.LabelSelectorAsSelector(peer.PodSelector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

func has(policy *networking.NetworkPolicy, kind networking.PolicyType) bool {
	for _, its := range policy.Spec.PolicyTypes {
		if its == kind {
			return true
		}
	}
	return len(policy.Spec.PolicyTypes) == 0 && (kind == networking.PolicyTypeIngress || len(policy.Spec.Egress) > 0)
}

func hasAddress(pod *core.Pod) bool {
	return pod.Status.PodIP != "" && !pod.Spec.HostNetwork && pod.Status.Phase != core.PodSucceeded && pod.Status.Phase != core.PodFailed
}
