public class Train {
    static int[] load(int n)
    {
        throw new IllegalStateException("vocabulary has " + n + " entries, 32000 are expected");
    }

    public static void main(String[] args)
    {
        System.out.println("loading");
        try {
            load(31999);
        } catch (IllegalStateException e) {
            throw new RuntimeException("can not start", e);
        }
    }
}
