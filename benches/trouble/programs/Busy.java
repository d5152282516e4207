import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public final class Busy {
    public static void main(String[] arguments) {
        for (int thread = 0; thread < 2; thread++) {
            new Thread(Busy::work).start();
        }
    }

    private static void work() {
        for (long round = 0; ; round++) {
            Map<String, List<Long>> map = new HashMap<>();
            for (long i = 0; i < 5000; i++) {
                map.computeIfAbsent("key " + (i * round) % 500, key -> new ArrayList<>()).add(i);
            }
            long sum = map.values().stream().flatMap(List::stream).mapToLong(Long::longValue).sum();
            if (sum == round) {
                System.out.println(sum);
            }
        }
    }
}
